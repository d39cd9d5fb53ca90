package load

import (
	"bytes"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"tidewire/internal/bench/frame"
	"tidewire/internal/bench/http1"
	"tidewire/internal/bench/sock"
)

// subscription is what a subscriber asks for.
type subscription struct {
	topic  string
	key    string // "": all
	cursor string // where to go on; "": from now on
}

// dialSubscriber opens a WebSocket with one subscription.
func dialSubscriber(t Target, sub subscription, key [4]byte) (*sock.Conn, error) {
	c, err := dialWebSocket(t)
	if err != nil {
		return nil, err
	}
	if err := subscribe(c, sub, key); err != nil {
		c.Cut()
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	return c, nil
}

func subscribe(c *sock.Conn, sub subscription, key [4]byte) error {
	line := `{"op":"subscribe","id":1,"topic":` + strconv.Quote(sub.topic)
	if sub.key != "" {
		line += `,"key":` + strconv.Quote(sub.key)
	}
	if err := c.Write(frame.Append(nil, frame.Text, []byte(line+"}"), key)); err != nil {
		return err
	}
	deadline, subscribed := time.Now().Add(handshakeTimeout), false
	for b, err := c.Rest(), error(nil); ; b, err = c.Fetch(deadline) {
		if err != nil {
			return err
		}
		used, err := Texts(b, c, key, func(payload []byte) error {
			for line := range bytes.SplitSeq(payload, []byte{'\n'}) {
				switch n, err := readNotice(line); {
				case err != nil:
					return err
				case n.Op == "error":
					return n.refusal()
				case n.Op == "subscribed":
					subscribed = true
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		c.Use(used)
		if subscribed {
			return nil
		}
	}
}

// dialEvents opens a stream of events. The first thing in it is where it
// stands: from then on it misses nothing.
func dialEvents(t Target, sub subscription) (*sock.Conn, http1.Head, error) {
	c, err := t.dial()
	if err != nil {
		return nil, http1.Head{}, err
	}
	head, err := askEvents(c, t, sub)
	if err != nil {
		c.Cut()
		return nil, head, fmt.Errorf("open a stream of events: %w", err)
	}
	return c, head, nil
}

func eventsPath(sub subscription) string {
	path := "/topics/" + url.PathEscape(sub.topic) + "/events?from=latest"
	if sub.cursor != "" {
		path += "&last_event_id=" + url.QueryEscape(sub.cursor)
	}
	if sub.key != "" {
		path += "&key=" + url.QueryEscape(sub.key)
	}
	return path
}

func askEvents(c *sock.Conn, t Target, sub subscription) (http1.Head, error) {
	err := c.Write([]byte("GET " + eventsPath(sub) + " HTTP/1.1\r\nHost: " + t.Host + "\r\nAccept: text/event-stream\r\n" + t.bearer() + "\r\n"))
	if err != nil {
		return http1.Head{}, err
	}
	head, text, err := fetchHead(c)
	if err != nil {
		return head, err
	}
	if head.Status != 200 {
		return head, fetchRefusal(c, head, text)
	}
	c.Use(head.Size)
	for deadline := time.Now().Add(handshakeTimeout); !bytes.Contains(c.Rest(), []byte("id: ")); {
		if _, err := c.Fetch(deadline); err != nil {
			return head, err
		}
	}
	return head, nil
}

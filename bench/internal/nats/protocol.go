// Package nats speaks NATS' client protocol for the load generator: core publishing,
// JetStream publishing, subscriptions, pull consumers and requests, over TCP or a
// WebSocket. Nothing is decoded that is not looked at.
package nats

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"

	"tidewire/internal/bench/frame"
	"tidewire/internal/bench/load"
	"tidewire/internal/bench/sock"
)

// Message is one MSG or HMSG. Its parts point into what was parsed.
type Message struct {
	Subject []byte
	Reply   []byte // nil: none
	Header  []byte // nil: none
	Payload []byte
}

// event is one thing that a server says.
type event struct {
	verb    byte // M message, P ping, O pong, K ok, I info
	message Message
	size    int
}

var crlf = []byte("\r\n")

// parse finds the first thing of b; whole is false where more bytes are needed.
func parse(b []byte) (e event, whole bool, err error) {
	end := bytes.Index(b, crlf)
	if end < 0 {
		return e, false, nil
	}
	line := b[:end]
	e.size = end + len(crlf)
	switch {
	case bytes.HasPrefix(line, []byte("MSG ")):
		return parseMessage(b, e, line[4:], false)
	case bytes.HasPrefix(line, []byte("HMSG ")):
		return parseMessage(b, e, line[5:], true)
	case bytes.Equal(line, []byte("+OK")):
		e.verb = 'K'
	case bytes.Equal(line, []byte("PING")):
		e.verb = 'P'
	case bytes.Equal(line, []byte("PONG")):
		e.verb = 'O'
	case bytes.HasPrefix(line, []byte("INFO ")):
		e.verb = 'I'
	default:
		return e, false, fmt.Errorf("nats-server says %.200s", line)
	}
	return e, true, nil
}

func parseMessage(b []byte, e event, rest []byte, headers bool) (event, bool, error) {
	fields := bytes.Fields(rest)
	sizes := 1
	if headers {
		sizes = 2
	}
	if len(fields) != 2+sizes && len(fields) != 3+sizes {
		return e, false, fmt.Errorf("a message of nats-server is not as expected: %.200s", rest)
	}
	total, err := strconv.Atoi(string(fields[len(fields)-1]))
	if err != nil {
		return e, false, err
	}
	if len(b) < e.size+total+len(crlf) {
		return e, false, nil
	}
	head := 0
	if headers {
		if head, err = strconv.Atoi(string(fields[len(fields)-2])); err != nil || head > total {
			return e, false, fmt.Errorf("a message of nats-server is not as expected: %.200s", rest)
		}
	}
	e.verb = 'M'
	e.message.Subject = fields[0]
	if len(fields) == 3+sizes {
		e.message.Reply = fields[2]
	}
	if head > 0 {
		e.message.Header = b[e.size : e.size+head]
	}
	e.message.Payload = b[e.size+head : e.size+total]
	e.size += total + len(crlf)
	return e, true, nil
}

// link is one connection.
type link struct {
	conn  *sock.Conn
	web   bool
	key   [4]byte
	carry []byte // of a WebSocket: what came and is not whole
	frame []byte
}

const handshakeTimeout = 30 * time.Second

// Address is where a client connects.
type Address struct {
	load.Target
	WebSocket bool
}

// dial connects; options are members of CONNECT.
func dial(a Address, options string) (*link, error) {
	l := &link{web: a.WebSocket, key: load.MaskKey()}
	var err error
	if a.WebSocket {
		l.conn, err = load.DialWebSocket(a.Target, "/", "")
	} else {
		l.conn, err = sock.Dial(a.Addr)
	}
	if err != nil {
		return nil, err
	}
	connect := `CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"protocol":1,"lang":"go","version":"bench"` + options + "}\r\n"
	if err := l.ask(connect); err != nil {
		l.conn.Cut()
		return nil, fmt.Errorf("connect to nats-server: %w", err)
	}
	return l, nil
}

// ask says something and waits until the server has worked through it. It is for the
// time before the connection is in a loop.
func (l *link) ask(text string) error {
	if err := l.say([]byte(text + "PING\r\n")); err != nil {
		return err
	}
	deadline, ponged := time.Now().Add(handshakeTimeout), false
	for b, err := l.conn.Rest(), error(nil); ; b, err = l.conn.Fetch(deadline) {
		if err != nil {
			return err
		}
		used, err := l.feed(b, func(e event) error {
			ponged = ponged || e.verb == 'O'
			return nil
		})
		if err != nil {
			return err
		}
		l.conn.Use(used)
		if ponged {
			return nil
		}
	}
}

// say writes what the server is to hear.
func (l *link) say(text []byte) error {
	if !l.web {
		return l.conn.Write(text)
	}
	l.frame = frame.Append(l.frame[:0], frame.Binary, text, l.key)
	return l.conn.Write(l.frame)
}

var pong = []byte("PONG\r\n")

// feed gives what the server says away, and answers pings.
func (l *link) feed(b []byte, each func(event) error) (used int, err error) {
	if !l.web {
		return l.events(b, each)
	}
	return load.Texts(b, l.conn, l.key, func(payload []byte) error {
		if len(l.carry) > 0 {
			l.carry = append(l.carry, payload...)
			payload = l.carry
		}
		n, err := l.events(payload, each)
		if err != nil {
			return err
		}
		l.carry = append(l.carry[:0], payload[n:]...)
		return nil
	})
}

func (l *link) events(b []byte, each func(event) error) (used int, err error) {
	for {
		e, whole, err := parse(b[used:])
		if err != nil || !whole {
			return used, err
		}
		used += e.size
		if e.verb == 'P' {
			err = l.say(pong)
		} else {
			err = each(e)
		}
		if err != nil {
			return used, err
		}
	}
}

// Request asks once, over a connection of its own, and waits for the answer. It is for
// making streams and consumers.
func Request(a Address, subject, payload string) (answer string, err error) {
	l, err := dial(a, "")
	if err != nil {
		return "", err
	}
	defer l.conn.Cut()
	if err := l.say(fmt.Appendf(nil, "SUB _INBOX.admin 1\r\nPUB %s _INBOX.admin %d\r\n%s\r\n", subject, len(payload), payload)); err != nil {
		return "", err
	}
	deadline := time.Now().Add(handshakeTimeout)
	for b, err := l.conn.Rest(), error(nil); ; b, err = l.conn.Fetch(deadline) {
		if err != nil {
			return "", fmt.Errorf("ask %s: %w", subject, err)
		}
		done := false
		used, err := l.feed(b, func(e event) error {
			if e.verb != 'M' {
				return nil
			}
			if bytes.Contains(e.message.Header, []byte(" 503")) {
				return errNoResponders
			}
			answer, done = string(e.message.Payload), true
			return nil
		})
		if err != nil {
			return "", fmt.Errorf("ask %s: %w", subject, err)
		}
		l.conn.Use(used)
		if done {
			return answer, nil
		}
	}
}

var errNoResponders = errors.New("nobody answers")

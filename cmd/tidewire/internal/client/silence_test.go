package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/internal/testkit/memnet"
)

// paused takes connections and what is sent over them, and answers with the beginning
// of an answer or with nothing, as a process does that was stopped.
func paused(t *testing.T, begin string) *Client {
	t.Helper()
	l := memnet.Listen()
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				in := bufio.NewReader(conn)
				if _, err := http.ReadRequest(in); err == nil { // nothing is answered before it is asked
					_, _ = io.WriteString(conn, begin)
				}
				_, _ = io.Copy(io.Discard, in)
			}()
		}
	}()
	c, err := New("http://paused")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	c.http.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		return l.Dial(ctx, network, address)
	}
	return c
}

func TestACallEndsWhenNothingComes(t *testing.T) {
	calls := map[string]func(context.Context, *Client) error{
		"nodes":  func(ctx context.Context, c *Client) error { _, _, err := c.Nodes(ctx); return err },
		"delete": func(ctx context.Context, c *Client) error { return c.DeleteTopic(ctx, "t") },
		"poll":   func(ctx context.Context, c *Client) error { _, err := c.Poll(ctx, "t", url.Values{}); return err },
		"publish": func(ctx context.Context, c *Client) error {
			_, err := c.Publish(ctx, Batch{Topic: "t", Lines: []byte("1\n"), Count: 1})
			return err
		},
	}
	for name, call := range calls {
		for _, begin := range []string{"", "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"} {
			t.Run(fmt.Sprintf("%s after %d bytes", name, len(begin)), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					began := time.Now()
					err := call(t.Context(), paused(t, begin))
					var gone *Unreachable
					if !errors.As(err, &gone) || !strings.Contains(err.Error(), "nothing has come from it for 15s") {
						t.Errorf("got %v", err)
					}
					if took := time.Since(began); took != answerSilence {
						t.Errorf("it took %s", took)
					}
				})
			})
		}
	}
}

// What keeps coming is not silent, however long it takes.
func TestAStreamEndsWhenNothingComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := paused(t, "HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\ndata: x\n\n")
		s, err := c.Events(t.Context(), "t", nil, "")
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if _, err := s.Next(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := s.Next(); err == nil || !strings.Contains(err.Error(), "nothing has come") || time.Since(began) != maxSilence {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

package load

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// streamsEach is how many streams share one connection of HTTP/2: a server
// takes a thousand at most.
const streamsEach = 500

// streams opens streams of events over HTTP/2 in clear text. Here the client is
// net/http's: what is measured is the server's memory.
func (w Connections) streams(ctx context.Context, p Progress) (*Held, error) {
	crew, err := newCrew(ctx, 1, 0)
	if err != nil {
		return nil, err
	}
	// A stream has no way to say that its connection was cut on purpose.
	closing := make(chan struct{})
	clients := make([]*streamClient, (w.Count+streamsEach-1)/streamsEach)
	for i := range clients {
		clients[i] = newStreamClient(w.Target.Addr.String())
	}
	h := &Held{}
	var once sync.Once
	h.close = func() {
		once.Do(func() {
			close(closing)
			for _, c := range clients {
				c.cut()
			}
			crew.stop()
		})
	}
	err = crew.each(w.Count, "connecting", p, func(i int) error {
		body, err := clients[i%len(clients)].open(crew.ctx, w.Target, eventsPath(w.subscription(i)))
		if err != nil {
			return err
		}
		crew.wg.Go(func() {
			defer body.Close()
			_, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{body}, make([]byte, 512))
			select {
			case <-closing:
			default:
				if err == nil {
					err = io.EOF
				}
				h.ended(err)
			}
		})
		return nil
	})
	if err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

// streamClient is one connection of HTTP/2.
type streamClient struct {
	transport *http.Transport
	mu        sync.Mutex
	conns     []net.Conn
}

func newStreamClient(addr string) *streamClient {
	c := &streamClient{}
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	c.transport = &http.Transport{
		Protocols: &protocols,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			conn, err := (&net.Dialer{Timeout: handshakeTimeout}).DialContext(ctx, network, addr)
			if err == nil {
				c.mu.Lock()
				c.conns = append(c.conns, conn)
				c.mu.Unlock()
			}
			return conn, err
		},
	}
	return c
}

// open opens a stream and waits until it says where it stands.
func (c *streamClient) open(ctx context.Context, t Target, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+t.Host+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	t.authorize(req)
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("open a stream of events: %w", err)
	}
	var b [512]byte
	n := 0
	for n < len(b) && resp.StatusCode == http.StatusOK && !bytes.Contains(b[:n], []byte("id: ")) {
		k, err := resp.Body.Read(b[n:])
		if n += k; err != nil {
			resp.Body.Close()
			return nil, fmt.Errorf("%w: %w", errNoStart, err)
		}
	}
	if resp.StatusCode != http.StatusOK {
		k, _ := io.ReadFull(resp.Body, b[:]) // what there is of it
		resp.Body.Close()
		after, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // 0: no advice
		return nil, newRefusal(resp.StatusCode, time.Duration(after)*time.Second, b[:k])
	}
	return resp.Body, nil
}

// cut resets the connection under the streams.
func (c *streamClient) cut() {
	c.mu.Lock()
	conns := c.conns
	c.conns = nil
	c.mu.Unlock()
	for _, conn := range conns {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // else it only ends more politely
		}
		conn.Close()
	}
	c.transport.CloseIdleConnections()
}

package floor

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
)

const (
	headerTimeout = 10 * time.Second
	// bodyBytes bounds what the floor takes for a body or a frame.
	bodyBytes = 32 << 20
)

// answer is about what the real server answers to a publish.
const answer = `{"topic":"bench-00000000","partition":0,"offset":1000000,"timestamp":"2026-01-01T00:00:00.000Z","duplicate":false}`

// Serve is the floor's server until ctx ends: a WebSocket at /ws gives every
// frame back, and what is published to those that have subscribed; anything else
// is read and answered. What is published waits until there is a run of so many. It
// prints where it listens, as the real one does.
func Serve(ctx context.Context, out io.Writer, run int) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	base, cancel := context.WithCancel(ctx)
	defer cancel()
	fan := newFan(run)
	srv := &http.Server{
		Handler: handler(fan), ReadHeaderTimeout: headerTimeout,
		BaseContext: func(net.Listener) context.Context { return base },
	}
	var wg sync.WaitGroup
	wg.Go(func() { fan.serveAll(base) })
	wg.Go(func() {
		<-base.Done()
		srv.Close()
	})
	fmt.Fprintf(out, "listening http=%s\nready in 0s\n", l.Addr())
	err = srv.Serve(l)
	cancel()
	wg.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func handler(f *fan) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ws", f.serve)
	mux.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, io.LimitReader(r.Body, bodyBytes)); err != nil {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, answer) // a client that is gone needs none
	})
	return mux
}

// keeper keeps the connection that is hijacked.
type keeper struct {
	http.ResponseWriter
	conn net.Conn
}

// Hijack is what the library looks for.
func (k *keeper) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(k.ResponseWriter).Hijack()
	k.conn = conn
	return conn, rw, err
}

// serve gives every frame back but one that subscribes.
func (f *fan) serve(w http.ResponseWriter, r *http.Request) {
	k := &keeper{ResponseWriter: w}
	c, err := websocket.Accept(k, r, &websocket.AcceptOptions{Subprotocols: r.Header.Values("Sec-WebSocket-Protocol"), CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return // answered
	}
	defer func() { _ = c.CloseNow() }() // it may be gone
	c.SetReadLimit(bodyBytes)
	var buf []byte
	for {
		kind, in, err := c.Reader(r.Context())
		if err != nil {
			return
		}
		if buf, err = readAll(buf[:0], in); err != nil {
			return
		}
		answer := buf
		if bytes.HasPrefix(buf, subscribeOp) {
			// First: who has the answer counts on what is published from then on.
			if f.subscribe(k.conn) != nil {
				return
			}
			answer = []byte(subscribed)
		}
		if c.Write(r.Context(), kind, answer) != nil {
			return
		}
		if bytes.HasPrefix(buf, publishOp) {
			f.publish(buf)
		}
	}
}

// readAll reads into b, which it grows.
func readAll(b []byte, r io.Reader) ([]byte, error) {
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if errors.Is(err, io.EOF) {
			return b, nil
		}
		if err != nil {
			return b, err
		}
	}
}

package floor

import (
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
// frame back, anything else is read and answered. It prints where it listens,
// as the real one does.
func Serve(ctx context.Context, out io.Writer) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	base, cancel := context.WithCancel(ctx)
	defer cancel()
	srv := &http.Server{
		Handler: handler(), ReadHeaderTimeout: headerTimeout,
		BaseContext: func(net.Listener) context.Context { return base },
	}
	var wg sync.WaitGroup
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

func handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ws", echo)
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

// echo gives every frame back.
func echo(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: r.Header.Values("Sec-WebSocket-Protocol"), CompressionMode: websocket.CompressionDisabled})
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
		if c.Write(r.Context(), kind, buf) != nil {
			return
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

package session_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"tidewire/gateway/session"
	"tidewire/internal/testkit/metric"
)

// smallWindow makes connections that take little ahead of their reader. It has to
// be told before they connect: a server goes by the largest window it has seen.
var smallWindow = net.Dialer{Control: func(_, _ string, raw syscall.RawConn) (err error) {
	if e := raw.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 8<<10) }); e != nil {
		return e
	}
	return err
}}

// trickle is a client's connection that reads a little at each tick, until free
// is closed. It is enough to open the window of its kernel, which is all that the
// node sees of it: of smaller pieces a busy machine reads too few for that in time.
type trickle struct {
	*net.TCPConn
	tick <-chan time.Time
	free <-chan struct{}
}

func (c *trickle) Read(b []byte) (int, error) {
	select {
	case <-c.free:
	case <-c.tick:
		b = b[:min(len(b), 4<<10)]
	}
	return c.TCPConn.Read(b)
}

// TestASlowReaderLives: a reader that takes bytes, though far fewer than come, is no
// slow consumer. What it reads has no gap.
func TestASlowReaderLives(t *testing.T) {
	// A busy machine may keep this client from its ticks for a second or two, in which it
	// takes nothing and is a slow consumer like any other.
	const timeout, records = 5 * time.Second, 60
	n := newNode(t, func(c *session.Config) { c.SlowConsumerTimeout = timeout })
	topic := n.Topic("orders", 1)
	srv := httptest.NewServer(n.manager)
	defer srv.Close()
	ticker := time.NewTicker(80 * time.Millisecond) // 50 KiB/s
	defer ticker.Stop()
	free := make(chan struct{})
	tr := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := smallWindow.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &trickle{conn.(*net.TCPConn), ticker.C, free}, nil
	}}
	defer tr.CloseIdleConnections()
	ws, _, err := websocket.Dial(t.Context(), srv.URL+"/ws", &websocket.DialOptions{HTTPClient: &http.Client{Transport: tr}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ws.CloseNow() }()
	ws.SetReadLimit(-1)
	if err := ws.Write(t.Context(), websocket.MessageText, []byte(`{"op":"subscribe","topic":"orders","from":"earliest"}`)); err != nil {
		t.Fatal(err)
	}
	for i := range records { // 3 MB: more than the kernel holds
		n.AppendValue(topic.Ref(0), "", fmt.Sprintf(`{"n":%d,"x":%q}`, i, strings.Repeat("x", 50_000)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	began := time.AfterFunc(timeout+timeout/2, func() { close(free) })
	defer began.Stop()
	for next := 0; next < records; {
		_, b, err := ws.Read(ctx)
		if err != nil {
			t.Fatalf("ended after %d of %d: %v", next, records, err)
		}
		for line := range strings.Lines(string(b)) {
			if _, value, ok := strings.Cut(line, `"value":{"n":`); ok {
				if want := fmt.Sprintf("%d,", next); !strings.HasPrefix(value, want) {
					t.Fatalf("%.20s follows %d", value, next-1)
				}
				next++
			}
		}
	}
	if ended := metric.Sum(t, n.reg, "gateway_slow_consumers_total"); ended != 0 {
		t.Errorf("%v slow consumers were ended", ended)
	}
}

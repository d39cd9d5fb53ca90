package session_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"tidewire/gateway/session"
	"tidewire/internal/testkit/metric"
)

// TestOverRealSockets holds what a pipe cannot show: a kernel that takes bytes
// for a client that does not read, resets, and many connections at once.
func TestOverRealSockets(t *testing.T) {
	n := newNode(t, func(c *session.Config) { c.SlowConsumerTimeout = 300 * time.Millisecond })
	topic := n.Topic("orders", 1)
	srv := httptest.NewServer(n.manager)
	defer srv.Close()
	await := func(name string, want float64) {
		t.Helper()
		for late := time.After(20 * time.Second); metric.Sum(t, n.reg, name) != want; {
			select {
			case <-time.After(2 * time.Millisecond):
			case <-late:
				t.Fatalf("%s is %v, not %v", name, metric.Sum(t, n.reg, name), want)
			}
		}
	}
	dial := func(who string) *websocket.Conn {
		t.Helper()
		ws, _, err := websocket.Dial(t.Context(), srv.URL+"/ws", &websocket.DialOptions{HTTPHeader: http.Header{"User-Agent": {who}}})
		if err != nil {
			t.Error(err)
			return nil
		}
		ws.SetReadLimit(-1)
		return ws
	}
	subscribe := func(ws *websocket.Conn) {
		t.Helper()
		if err := ws.Write(t.Context(), websocket.MessageText, []byte(`{"op":"subscribe","topic":"orders"}`)); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		for got := ""; !strings.Contains(got, `"op":"subscribed"`); {
			_, b, err := ws.Read(ctx)
			if err != nil {
				t.Error(err) // perhaps not on the test's own goroutine
				return
			}
			got += string(b)
		}
	}
	slow, quick := dial("slow"), dial("quick")
	subscribe(slow)
	subscribe(quick)
	const records = 400
	value := `"` + strings.Repeat("x", 50_000) + `"`
	var reader sync.WaitGroup
	got := 0
	reader.Go(func() {
		for got < records {
			_, b, err := quick.Read(context.Background())
			if err != nil {
				t.Errorf("the quick one after %d: %v", got, err)
				return
			}
			got += strings.Count(string(b), `"value":"x`)
		}
	})
	for range records { // 20 MB: more than any kernel takes
		n.AppendValue(topic.Ref(0), "", value)
	}
	reader.Wait()
	await("gateway_slow_consumers_total", 1)
	await("gateway_connections", 1) // the quick one, which is read on below
	_ = slow.CloseNow()

	// Clients that vanish, a few at a time, leave nothing.
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 25 {
				if ws := dial("guest"); ws != nil {
					subscribe(ws)
					_ = ws.CloseNow()
				}
			}
		})
	}
	all.Wait()
	await("gateway_connections", 1)
	if err := quick.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Fatal(err)
	}
	await("gateway_connections", 0)
	await("gateway_websocket_subscriptions", 0)
}

// TestControlsAreTakenWithoutTheLibrary sends pings and pongs whole, in pieces
// and next to messages: each is taken for what it is.
func TestControlsAreTakenWithoutTheLibrary(t *testing.T) {
	n := newNode(t)
	n.Topic("orders", 1)
	srv := httptest.NewServer(n.manager)
	defer srv.Close()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	frame := func(op byte, payload string) string {
		key := [4]byte{1, 2, 3, 4}
		b := append([]byte{op, 0x80 | byte(len(payload))}, key[:]...)
		for i := range len(payload) {
			b = append(b, payload[i]^key[i%4])
		}
		return string(b)
	}
	ping, pong := frame(0x89, "one"), frame(0x8A, "")
	unsubscribe := frame(0x81, `{"op":"unsubscribe","id":7,"sub":"s9"}`)
	expect := func(what string) {
		t.Helper()
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		b, got := make([]byte, 4096), ""
		for !strings.Contains(got, what) {
			n, err := conn.Read(b)
			if err != nil {
				t.Fatalf("%v after %q, waiting for %q", err, got, what)
			}
			got += string(b[:n])
		}
	}
	send := func(bytes string) {
		t.Helper()
		if _, err := io.WriteString(conn, bytes); err != nil {
			t.Fatal(err)
		}
	}
	send("GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
	expect("welcome")
	for range 3 { // the first round is the first goroutine's, the others come after it
		send(ping)
		expect("\x8a\x03one")
		send(pong + pong)
		send(pong + ping)
		expect("\x8a\x03one")
		send(pong + unsubscribe)
		expect(`"id":7`)
		send(unsubscribe + ping)
		expect(`"id":7`)
		send(ping[:4])
		send(ping[4:] + unsubscribe[:9])
		send(unsubscribe[9:])
		expect(`"id":7`)
	}
	send(frame(0x88, "\x03\xe8"))
	expect("\x88")
}

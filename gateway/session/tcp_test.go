package session_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"tidewire/gateway/session"
)

// TestOverRealSockets holds what a pipe cannot show: a kernel that takes bytes
// for a client that does not read, resets, and many connections at once.
func TestOverRealSockets(t *testing.T) {
	n := newNode(t, func(c *session.Config) { c.SlowConsumerTimeout = 300 * time.Millisecond })
	topic := n.topic("orders", 1)
	srv := httptest.NewServer(n.manager)
	defer srv.Close()
	await := func(metric string, want float64) {
		t.Helper()
		for late := time.After(20 * time.Second); n.metric(t, metric) != want; {
			select {
			case <-time.After(2 * time.Millisecond):
			case <-late:
				t.Fatalf("%s is %v, not %v", metric, n.metric(t, metric), want)
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
		n.append(topic.Ref(0), "", value)
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

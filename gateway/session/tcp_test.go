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
	ended := make(chan string, 1000)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.manager.ServeHTTP(w, r)
		ended <- r.URL.Query().Get("who") + r.Header.Get("User-Agent")
	}))
	defer srv.Close()
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
	select {
	case who := <-ended:
		if who != "slow" {
			t.Fatalf("%s ended", who)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the slow one lives")
	}
	if v := n.metric(t, "gateway_slow_consumers_total"); v != 1 {
		t.Fatalf("%v slow consumers", v)
	}
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
	for range 200 {
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			t.Fatal("a connection of a client that vanished is still there")
		}
	}
	if err := quick.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Fatal(err)
	}
	<-ended
	for _, name := range []string{"gateway_connections", "gateway_websocket_subscriptions"} {
		if v := n.metric(t, name); v != 0 {
			t.Errorf("%s is %v", name, v)
		}
	}
}

package session_test

import (
	"context"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"tidewire/gateway/session"
	"tidewire/internal/testkit/metric"
)

// readers are how many goroutines read for clients.
func readers() int {
	b := make([]byte, 4<<20)
	return strings.Count(string(b[:runtime.Stack(b, true)]), "session.(*session).Run(")
}

// TestIdleConnectionsHaveNoReader has clients do nothing but answer pings, and then all that
// may wake the reader of one: a frame, the client's close, a cut, and the node's end.
func TestIdleConnectionsHaveNoReader(t *testing.T) {
	var reading sync.WaitGroup
	t.Cleanup(reading.Wait)
	// Whoever is silent for two pings is cut off, and these clients are on a busy machine.
	n := newNode(t, func(c *session.Config) { c.Ping = 3 * time.Second })
	n.Topic("orders", 1)
	srv := httptest.NewServer(n.manager)
	defer srv.Close()
	const clients = 20
	all := make([]*websocket.Conn, clients)
	subscribed := make(chan struct{}, clients)
	for i := range all {
		ws, _, err := websocket.Dial(t.Context(), srv.URL+"/ws", nil)
		if err != nil {
			t.Fatal(err)
		}
		all[i] = ws
		reading.Go(func() {
			for {
				_, b, err := ws.Read(context.Background())
				if err != nil {
					return
				}
				if strings.Contains(string(b), `"op":"subscribed"`) {
					subscribed <- struct{}{}
				}
			}
		})
	}
	until := func(what string, holds func() bool) {
		t.Helper()
		for late := time.After(30 * time.Second); !holds(); {
			select {
			case <-time.After(time.Millisecond):
			case <-late:
				t.Fatalf("%s: %d readers, %v connections", what, readers(), metric.Sum(t, n.reg, "gateway_connections"))
			}
		}
	}
	connected := func(want int) func() bool {
		return func() bool { return metric.Sum(t, n.reg, "gateway_connections") == float64(want) }
	}
	// A pong wakes a reader for a moment, so that not all sleep at every moment.
	until("nearly all sleep", func() bool { return readers() <= clients/4 })
	for _, ws := range all {
		if err := ws.Write(t.Context(), websocket.MessageText, []byte(`{"op":"subscribe","topic":"orders"}`)); err != nil {
			t.Fatal(err)
		}
	}
	for range all {
		select {
		case <-subscribed:
		case <-time.After(30 * time.Second):
			t.Fatal("a frame is not read")
		}
	}
	until("they sleep again", func() bool { return readers() <= clients/4 })
	if err := all[0].Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Fatal(err)
	}
	_ = all[1].CloseNow()
	until("two have gone", connected(clients-2))
	// The end of the node cuts the others, and waits for their readers.
}

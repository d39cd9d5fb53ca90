package session_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/internal/ident"
	"tidewire/internal/testkit/metric"
)

func TestPingsAndSilence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		live := n.open(t)
		began := time.Now()
		dead := n.dial(t, "", true) // reads, and says nothing
		dead.want(t, "welcome")
		if code, _ := dead.closed(t); code != 4002 {
			t.Fatal(code)
		}
		if d := time.Since(began); d < 50*time.Second || d > 75*time.Second {
			t.Fatalf("closed after %v", d)
		}
		if !dead.pings[0].Before(began.Add(25*time.Second)) || dead.pings[1].Sub(dead.pings[0]) != 25*time.Second || len(dead.pings) != 2 {
			t.Fatalf("%v", dead.pings)
		}
		time.Sleep(10 * time.Minute)
		live.send(t, `{"op":"hello","id":1}`)
		live.want(t, "welcome")
		if got := len(live.pings); got < 25 {
			t.Fatalf("%d pings", got)
		}
		if err := live.ws.Ping(context.Background()); err != nil { // and the server answers pings
			t.Fatal(err)
		}
	})
}

func TestASlowConsumerIsEndedAndNobodyElse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		ref := n.Topic("orders", 1).Ref(0)
		slow := n.open(t)
		slow.send(t, `{"op":"subscribe","topic":"orders"}`)
		at := slow.want(t, "subscribed").str("cursor")
		gate := slow.pause()
		quick := n.open(t)
		quick.send(t, `{"op":"subscribe","topic":"orders"}`)
		quick.want(t, "subscribed")
		began := time.Now()
		for i := range 200 {
			n.AppendValue(ref, "", fmt.Sprintf(`"%d %s"`, i, strings.Repeat("x", 2000)))
			if i%20 == 19 {
				quick.messages(t, 20)
				time.Sleep(100 * time.Millisecond)
			}
		}
		for metric.Sum(t, n.reg, "gateway_slow_consumers_total") == 0 {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			if time.Since(began) > 15*time.Second {
				t.Fatal("the slow one lives")
			}
		}
		if d := time.Since(began); d < 10*time.Second {
			t.Fatalf("ended after %v", d)
		}
		close(gate)
		slow.vanish()
		again := n.open(t)
		again.send(t, `{"op":"subscribe","topic":"orders","cursor":"`+at+`"}`)
		if o := again.want(t, "subscribed"); o["recovered"] != true {
			t.Fatal(o)
		}
		if got := again.messages(t, 200); got[0].num("offset") != 0 || got[199].num("offset") != 199 {
			t.Fatal(ids(got))
		}
		if code := metric.Sum(t, n.reg, "gateway_websocket_closes_total"); code != 1 {
			t.Fatal(code)
		}
	})
}

func TestDrainTellsWhereAndWhen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		ref := n.Topic("orders", 1).Ref(0)
		var clients []*client
		for range 50 {
			c := n.open(t)
			c.send(t, `{"op":"subscribe","topic":"orders"}`)
			c.want(t, "subscribed")
			clients = append(clients, c)
		}
		n.mu.Lock()
		n.hold = make(chan struct{})
		n.mu.Unlock()
		busy := clients[0]
		busy.send(t, `{"op":"publish","id":9,"topic":"orders","value":1}`)
		synctest.Wait()
		n.AppendValue(ref, "", `"last"`)
		for _, c := range clients {
			c.messages(t, 1)
		}
		var drained sync.WaitGroup
		drained.Go(func() {
			if err := n.manager.Drain(t.Context()); err != nil {
				t.Error(err)
			}
		})
		// They are told one after another. Everybody has said goodbye before the publish
		// that is held is kept, and delivered.
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		delays := map[string]bool{}
		for i, c := range clients {
			cursor := c.want(t, "cursor").str("cursor")
			o := c.want(t, "closing")
			d, err := time.ParseDuration(o.str("retry_after"))
			if err != nil || d < time.Second || d > 6*time.Second+100*time.Millisecond || o.str("reason") != "draining" || cursor == "" {
				t.Fatal(o, err)
			}
			delays[o.str("retry_after")] = true
			if i == 0 {
				c.send(t, `{"op":"publish","id":10,"topic":"orders","value":1}`, `{"op":"subscribe","id":11,"topic":"orders"}`)
				for id := 10; id <= 11; id++ {
					if o := c.want(t, "error"); o.num("id") != id || o.str("code") != "draining" {
						t.Fatal(o)
					}
				}
				close(n.hold)
				if o := c.want(t, "published"); o.num("id") != 9 {
					t.Fatal(o)
				}
			}
			if code, _ := c.closed(t); code != 1012 {
				t.Fatal(code)
			}
		}
		drained.Wait()
		if len(delays) < 40 {
			t.Fatalf("%d different delays", len(delays))
		}
	})
}

// TestBytesBehindTheUpgradeAreNotLost sends the first frame together with the
// request, before the server has answered.
func TestBytesBehindTheUpgradeAreNotLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		mine, err := n.listener.Dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		line := `{"op":"hello","id":5}`
		frame := append([]byte{0x81, 0x80 | byte(len(line)), 0, 0, 0, 0}, line...) // masked with zeros
		var sent sync.WaitGroup
		sent.Go(func() {
			_, _ = mine.Write(append([]byte("GET /ws HTTP/1.1\r\nHost: node\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
				"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"), frame...))
		})
		got := ""
		for buf := make([]byte, 4096); strings.Count(got, `"op":"welcome"`) < 2; {
			_ = mine.SetReadDeadline(time.Now().Add(time.Minute))
			k, err := mine.Read(buf)
			if err != nil {
				t.Fatalf("%v after %q", err, got)
			}
			got += string(buf[:k])
		}
		if !strings.Contains(got, `"op":"welcome","id":5`) {
			t.Fatalf("%q", got)
		}
		sent.Wait()
		_ = mine.Close()
	})
}

func TestDrainHasAnEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.Topic("orders", 1)
		n.hold = make(chan struct{})
		c := n.open(t)
		c.send(t, `{"op":"publish","id":1,"topic":"orders","value":1}`)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		if err := n.manager.Drain(ctx); err == nil || time.Since(began) != 3*time.Second {
			t.Fatal(err, time.Since(began))
		}
		if code, _ := c.closed(t); code != -1 {
			t.Fatal(code)
		}
		close(n.hold)
	})
}

// TestNothingIsLeftOfConnections connects and goes away in every way.
func TestNothingIsLeftOfConnections(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		topic := n.Topic("orders", 2)
		for round := range 60 {
			c := n.open(t)
			for range round % 3 {
				c.send(t, `{"op":"subscribe","topic":"orders","from":"earliest"}`)
				for c.next(t).str("op") != "subscribed" {
				}
			}
			switch round % 4 {
			case 0:
				c.vanish()
			case 1:
				_ = c.ws.Close(1000, "")
			case 2:
				c.send(t, `{"op":"publish","topic":"orders","value":1}`)
				c.vanish()
			case 3: // while messages are on their way
				n.AppendValue(topic.Ref(ident.Index(round%2)), "", `1`)
				c.vanish()
			}
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		for _, name := range []string{"gateway_connections", "gateway_websocket_subscriptions", "gateway_websocket_in_flight_publishes", "gateway_feeds"} {
			if v := metric.Sum(t, n.reg, name); v != 0 {
				t.Errorf("%s is %v", name, v)
			}
		}
		if v := metric.Sum(t, n.reg, "gateway_websocket_closes_total"); v != 60 {
			t.Errorf("%v closes", v)
		}
	})
}

package session_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/gateway/cursor"
	"tidewire/gateway/deliver"
	"tidewire/gateway/seats"
	"tidewire/gateway/session"
	"tidewire/internal/ident"
	"tidewire/internal/testkit/metric"
)

func bubble(t *testing.T, f func(t *testing.T)) { t.Helper(); synctest.Test(t, f) }

func TestUpgradesThatAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		for name, c := range map[string]struct {
			method, query string
			header        map[string]string
			status        int
			code, detail  string
		}{
			"no upgrade":        {header: map[string]string{"Upgrade": "", "Connection": ""}, status: 400, code: "invalid", detail: "Upgrade"},
			"a POST":            {method: "POST", status: 405, code: "method-not-allowed"},
			"an old version":    {header: map[string]string{"Sec-WebSocket-Version": "8"}, status: 400, code: "invalid", detail: "13"},
			"no key":            {header: map[string]string{"Sec-WebSocket-Key": ""}, status: 400, code: "invalid", detail: "Sec-WebSocket-Key"},
			"a short key":       {header: map[string]string{"Sec-WebSocket-Key": "YWJj"}, status: 400, code: "invalid", detail: "Sec-WebSocket-Key"},
			"a foreign origin":  {header: map[string]string{"Origin": "https://evil.example"}, status: 403, code: "forbidden", detail: "allowed_origins"},
			"a strange name":    {header: map[string]string{"Host": "evil.example", "Origin": "http://evil.example"}, status: 403, code: "forbidden", detail: "advertise_http"},
			"a null origin":     {header: map[string]string{"Origin": "null"}, status: 403, code: "forbidden"},
			"other subprotocol": {header: map[string]string{"Sec-WebSocket-Protocol": "mqtt"}, status: 400, code: "invalid", detail: "tidewire.v1.json"},
			"a token":           {header: map[string]string{"Sec-WebSocket-Protocol": "tidewire.v1.json, bearer.abc"}, status: 400, code: "invalid", detail: "tokens"},
			"a parameter":       {query: "?subscripton=x", status: 400, code: "unknown-field", detail: "subscription"},
			"no subscription":   {query: "?subscription=x", status: 404, code: "not-found"},
			"twice":             {query: "?subscription=x&subscription=y", status: 400, code: "invalid"},
		} {
			method := "GET"
			if c.method != "" {
				method = c.method
			}
			req, _ := http.NewRequest(method, "http://node/ws"+c.query, nil)
			for k, v := range map[string]string{"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg=="} {
				req.Header.Set(k, v)
			}
			for k, v := range c.header {
				if req.Header.Set(k, v); v == "" {
					req.Header.Del(k)
				}
			}
			if host := c.header["Host"]; host != "" {
				req.Host = host
			}
			res, err := n.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			var problem struct{ Code, Detail, Type string }
			if err := json.NewDecoder(res.Body).Decode(&problem); err != nil || res.StatusCode != c.status || problem.Code != c.code || !strings.Contains(problem.Detail, c.detail) || res.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s: %d %+v %v", name, res.StatusCode, problem, err)
			}
			if method == "POST" && res.Header.Get("Allow") != "GET" {
				t.Errorf("%s: Allow %q", name, res.Header.Get("Allow"))
			}
			_ = res.Body.Close()
		}
		for _, origin := range []string{"", "http://node", "https://node", "https://APP.example"} {
			req, _ := http.NewRequest("GET", "http://node/ws", nil)
			for k, v := range map[string]string{"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg==", "Origin": origin} {
				if v != "" {
					req.Header.Set(k, v)
				}
			}
			res, err := n.client.Do(req)
			if err != nil || res.StatusCode != 101 {
				t.Fatalf("origin %q: %v %+v", origin, err, res)
			}
			_ = res.Body.Close()
		}
	})
}

func TestLimitsOfConnections(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t, func(c *session.Config) { c.Seats = seats.New(2, 0, 0, c.Deliveries.Refused) })
		a := n.open(t)
		n.open(t)
		refused := func(status int) {
			t.Helper()
			req, _ := http.NewRequest("GET", "http://node/ws", nil)
			for k, v := range map[string]string{"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg=="} {
				req.Header.Set(k, v)
			}
			res, err := n.client.Do(req)
			if err != nil || res.StatusCode != status || res.Header.Get("Retry-After") == "" {
				t.Fatalf("%v %+v", err, res)
			}
			_ = res.Body.Close()
		}
		refused(503)
		a.vanish()
		synctest.Wait()
		n.open(t)
		if err := n.manager.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		refused(503)
	})
}

func TestWelcomeComesAtOnceAndToHello(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		c := n.dial(t, "", false)
		w := c.want(t, "welcome")
		limits, _ := w["limits"].(map[string]any)
		if _, has := w["id"]; has || w.str("connection") == "" || w.str("node") != "one" || w.str("ping") != "25s" || limits["max_frame_bytes"] != 100_000.0 || limits["max_subscriptions"] != 4.0 || limits["max_in_flight_publishes"] == nil {
			t.Fatalf("%v", w)
		}
		c.send(t, `{"op":"hello","id":7,"client":"test","version":"1"}`)
		if again := c.want(t, "welcome"); again.num("id") != 7 || again.str("connection") != w.str("connection") {
			t.Fatalf("%v", again)
		}
		if c.ws.Subprotocol() != session.Subprotocol {
			t.Fatalf("subprotocol %q", c.ws.Subprotocol())
		}
	})
}

func TestPublish(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.Topic("orders", 1)
		c := n.open(t)
		c.send(t,
			`{"op":"publish","id":1,"topic":"orders","key":"k","value":{"a": 1}}`,
			`{"op":"publish","id":2,"topic":"orders","value":2,"acks":"none"}`,
			`{"op":"publish","id":3,"topic":"nowhere","value":3}`,
			`{"op":"publish","topic":"orders","value":4}`)
		if o := c.want(t, "published"); o.num("id") != 1 || o.num("offset") != 0 || o.str("topic") != "orders" || o["duplicate"] != false || o.str("timestamp") == "" {
			t.Fatalf("%v", o)
		}
		o := c.want(t, "published")
		if _, has := o["offset"]; has || o.num("id") != 2 {
			t.Fatalf("%v", o)
		}
		if o = c.want(t, "error"); o.num("id") != 3 || o.str("code") != "topic-not-found" {
			t.Fatalf("%v", o)
		}
		if o = c.want(t, "published"); o["id"] != nil || o.num("offset") != 2 {
			t.Fatalf("%v", o)
		}
	})
}

func TestARefusedSequenceIsUsedUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.Topic("orders", 1)
		c := n.open(t)
		publish := func(id, seq int, rest string) {
			c.send(t, fmt.Sprintf(`{"op":"publish","id":%d,"topic":"orders","partition":0,"producer":"0190b0a6-7c1e-7d0c-8f2a-3a1b2c3d4e5f","sequence":%d,%s}`, id, seq, rest))
		}
		publish(1, 0, `"value":1`)
		publish(2, 1, `"value":1,"content_type":"nonsense"`)
		publish(3, 2, `"value":3`)
		publish(4, 9, `"value":1,"headers":7`)
		c.want(t, "published")
		if o := c.want(t, "error"); o.num("id") != 2 || o.str("code") != "invalid" || o.str("field") != "content_type" {
			t.Fatalf("%v", o)
		}
		if o := c.want(t, "published"); o.num("offset") != 1 {
			t.Fatalf("%v", o)
		}
		if o := c.want(t, "error"); o.num("id") != 4 || o.str("code") != "out-of-order-sequence" || o.num("expected") != 3 {
			t.Fatalf("%v", o)
		}
		if len(n.voids) != 1 || n.voids[0] != 1 {
			t.Fatalf("%v", n.voids)
		}
		// A value that is no JSON breaks its line: what stands before it is known.
		publish(5, 3, `"value":{"a":}`)
		publish(6, 4, `"value":4`)
		if o := c.want(t, "error"); o.num("id") != 5 || o.str("code") != "invalid" || !strings.Contains(o.str("detail"), "not valid JSON") {
			t.Fatalf("%v", o)
		}
		if o := c.want(t, "published"); o.num("id") != 6 || o.num("offset") != 2 {
			t.Fatalf("%v", o)
		}
	})
}

func TestPublishesInFlightAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.Topic("orders", 1)
		n.hold = make(chan struct{})
		c := n.open(t)
		const aFrame = 64
		frame := []byte(strings.Repeat(`{"op":"publish","topic":"orders","value":1}`+"\n", aFrame))
		sent := 0
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			for ctx.Err() == nil && sent < session.MaxInFlightPublishes+10*aFrame {
				if c.ws.Write(context.Background(), 1, frame) != nil {
					return
				}
				sent += aFrame
			}
		}()
		synctest.Wait()
		if got := metric.Sum(t, n.reg, "gateway_websocket_in_flight_publishes"); got != session.MaxInFlightPublishes || sent > session.MaxInFlightPublishes+2*aFrame {
			t.Fatalf("%v in flight, %d sent", got, sent)
		}
		close(n.hold)
		<-stopped
		for range session.MaxInFlightPublishes + 10*aFrame {
			c.want(t, "published")
		}
	})
}

func TestSubscribe(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		topic := n.Topic("orders", 1)
		ref := topic.Ref(0)
		for i := range 3 {
			n.AppendValue(ref, "k", fmt.Sprintf(`{"n": %d}`, i))
		}
		c := n.open(t)
		c.send(t, `{"op":"subscribe","id":1,"topic":"orders","from":"earliest"}`)
		s := c.want(t, "subscribed")
		if s.num("id") != 1 || s.str("sub") != "s1" || s.str("cursor") == "" || s["recovered"] != false {
			t.Fatalf("%v", s)
		}
		if got := c.messages(t, 3); ids(got) != "0:0 0:1 0:2" || got[0].str("sub") != "s1" {
			t.Fatalf("%v", got)
		}
		if c.frames > 3 { // welcome, subscribed, all messages
			t.Fatalf("%d frames", c.frames)
		}
		c.send(t, `{"op":"subscribe","id":2,"topic":"orders","key":"other"}`)
		c.want(t, "subscribed", "cursor")
		n.AppendValue(ref, "other", `"x"`)
		got := c.messages(t, 2) // once for each
		if ids(got) != "0:3 0:3" || got[0].str("sub") == got[1].str("sub") || got[0].str("value") != "x" || got[0].str("key") != "other" {
			t.Fatalf("%v", got)
		}
		c.send(t, `{"op":"unsubscribe","id":3,"sub":"s1"}`)
		if o := c.want(t, "unsubscribed", "cursor"); o.num("id") != 3 || o.str("sub") != "s1" {
			t.Fatalf("%v", o)
		}
		n.AppendValue(ref, "other", `1`)
		if got := c.messages(t, 1); got[0].str("sub") != "s2" {
			t.Fatalf("%v", got)
		}
		c.send(t, `{"op":"subscribe","id":4,"topic":"orders"}`, `{"op":"unsubscribe","id":5,"sub":"s3"}`, `{"op":"subscribe","id":6,"topic":"orders"}`, `{"op":"subscribe","id":7,"topic":"orders"}`, `{"op":"subscribe","id":8,"topic":"orders"}`, `{"op":"subscribe","id":9,"topic":"orders"}`)
		for _, op := range []string{"subscribed", "unsubscribed", "subscribed", "subscribed", "subscribed"} {
			c.want(t, op, "cursor")
		}
		if o := c.want(t, "error", "cursor"); o.num("id") != 9 || o.str("code") != "limit" || o.str("limit") != "max_subscriptions" {
			t.Fatalf("%v", o)
		}
		n.AppendValue(ref, "", `1`)
		if got := c.messages(t, 3); got[0].str("sub") == "s3" || got[1].str("sub") == "s3" {
			t.Fatalf("%v", got)
		}
		synctest.Wait()
		if v := metric.Sum(t, n.reg, "gateway_websocket_subscriptions"); v != 4 {
			t.Fatalf("%v subscriptions", v)
		}
	})
}

func TestCreditHoldsOneSubscriptionAndNoOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		ref := n.Topic("orders", 1).Ref(0)
		for range 50 {
			n.AppendValue(ref, "k", `1`)
		}
		c := n.open(t)
		c.send(t, `{"op":"subscribe","topic":"orders","from":"earliest","credit":2}`)
		c.want(t, "subscribed")
		if got := c.messages(t, 2); ids(got) != "0:0 0:1" {
			t.Fatal(ids(got))
		}
		c.send(t, `{"op":"subscribe","topic":"orders","from":"earliest"}`)
		c.want(t, "subscribed", "cursor")
		for _, m := range c.messages(t, 50) {
			if m.str("sub") != "s2" {
				t.Fatalf("%v", m)
			}
		}
		c.send(t, `{"op":"credit","sub":"s2","add":3,"id":4}`)
		if o := c.want(t, "error", "cursor"); o.num("id") != 4 || o.str("field") != "sub" {
			t.Fatal(o)
		}
		c.send(t, `{"op":"credit","sub":"s1","add":3}`)
		if got := c.messages(t, 3); ids(got) != "0:2 0:3 0:4" {
			t.Fatal(ids(got))
		}
		time.Sleep(10 * time.Second)
		c.send(t, `{"op":"credit","sub":"s1","add":1}`)
		if got := c.messages(t, 1); ids(got) != "0:5" {
			t.Fatal(ids(got))
		}
	})
}

func TestCursorsComeWithinTwoSecondsAndOnceASecond(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		ref := n.Topic("orders", 1).Ref(0)
		c := n.open(t)
		c.send(t, `{"op":"subscribe","topic":"orders"}`)
		first := c.want(t, "subscribed").str("cursor")
		seen, last, began := 0, first, time.Now()
		var at []time.Time
		for i := range 100 { // ten a second
			n.AppendValue(ref, "", fmt.Sprint(i))
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			c.mu.Lock()
			lines := c.lines
			c.lines = nil
			c.mu.Unlock()
			for _, l := range lines {
				switch {
				case strings.Contains(l, `"offset"`):
					seen++
				case strings.Contains(l, `"op":"cursor"`):
					var o object
					_ = json.Unmarshal([]byte(l), &o)
					if o.str("cursor") == last {
						t.Fatal("a cursor that has not moved")
					}
					last = o.str("cursor")
					at = append(at, time.Now())
				}
			}
		}
		if seen != 100 || len(at) < 5 || len(at) > 10 || at[0].Sub(began) > 2*time.Second {
			t.Fatalf("%d messages, cursors at %v", seen, at)
		}
		for i := range at[1:] {
			if d := at[i+1].Sub(at[i]); d < 900*time.Millisecond || d > 2*time.Second {
				t.Fatalf("cursors %v apart", d)
			}
		}
		time.Sleep(2 * time.Second) // a cursor for the last of them, if it is still to come; then silence
		synctest.Wait()
		for len(c.lines) > 0 {
			last = c.want(t, "cursor").str("cursor")
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if end, err := n.hub.Resolve(t.Context(), deliver.Request{Topic: n.Snapshot().Topics["orders"], From: "latest"}); err != nil || end.Cursor() != last || len(c.lines) != 0 {
			t.Fatalf("%q", c.lines)
		}
	})
}

// TestACursorThatIsDueComesWithTheMessages: a subscriber that gets a message now
// and then costs one write for each.
func TestACursorThatIsDueComesWithTheMessages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		ref := n.Topic("orders", 1).Ref(0)
		c := n.open(t)
		c.send(t, `{"op":"subscribe","topic":"orders"}`)
		c.want(t, "subscribed")
		frames := func() int {
			synctest.Wait()
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.frames
		}
		last := ""
		for i := range 10 {
			before := frames()
			n.AppendValue(ref, "", fmt.Sprint(i))
			time.Sleep(2 * time.Second)
			if got := frames() - before; got != 1 {
				t.Fatalf("message %d made %d frames", i, got)
			}
			c.messages(t, 1)
			last = c.want(t, "cursor").str("cursor")
		}
		if end, err := n.hub.Resolve(t.Context(), deliver.Request{Topic: n.Snapshot().Topics["orders"], From: "latest"}); err != nil || end.Cursor() != last {
			t.Fatal(last, err)
		}
	})
}

// TestAFilteredSubscriptionHearsWhereItStands: what its filter keeps back makes
// no push by itself. The cursor comes with the pings, with what it does get, and
// before a close.
func TestAFilteredSubscriptionHearsWhereItStands(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		topic := n.Topic("orders", 1)
		ref := topic.Ref(0)
		c := n.open(t)
		c.send(t, `{"op":"subscribe","topic":"orders","key":"mine"}`)
		c.want(t, "subscribed")
		synctest.Wait()
		offset := func(o object) ident.Offset {
			at, err := cursor.Parse(o.str("cursor"))
			if err != nil {
				t.Fatal(err)
			}
			return at.Places[0].Offset
		}
		var told []ident.Offset
		for i := range 100 { // 100 s, four pings
			n.AppendValue(ref, "other", fmt.Sprint(i))
			time.Sleep(time.Second)
			synctest.Wait()
			c.mu.Lock()
			waiting := len(c.lines)
			c.mu.Unlock()
			for range waiting {
				told = append(told, offset(c.want(t, "cursor")))
			}
		}
		if pings := len(c.pings); len(told) != pings || pings < 3 || told[pings-1]-told[pings-2] != 25 {
			t.Fatalf("cursors at %v with %d pings", told, pings)
		}
		n.AppendValue(ref, "mine", `"own"`)
		if got := c.messages(t, 1); got[0].num("offset") != 100 {
			t.Fatal(got)
		}
		if o := offset(c.want(t, "cursor")); o != 101 {
			t.Fatal(o)
		}
		n.AppendValue(ref, "other", "1")
		synctest.Wait()
		var drained sync.WaitGroup
		drained.Go(func() { _ = n.manager.Drain(context.Background()) })
		if o := offset(c.want(t, "cursor")); o != 102 {
			t.Fatalf("told %d before the close", o)
		}
		c.want(t, "closing")
		c.closed(t)
		drained.Wait()
	})
}

// TestCursorsComeWhileCatchingUp: a reader that has always more to read hears
// where it stands all the same, and is pinged.
func TestCursorsComeWhileCatchingUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		ref := n.Topic("orders", 1).Ref(0)
		const records = 300
		value := `"` + strings.Repeat("x", 50_000) + `"`
		for range records {
			n.AppendValue(ref, "", value)
		}
		c := n.open(t)
		c.mu.Lock()
		c.pace = 500 * time.Millisecond
		c.mu.Unlock()
		c.send(t, `{"op":"subscribe","topic":"orders","from":"earliest"}`)
		c.want(t, "subscribed")
		began, last, got, cursors := time.Now(), time.Now(), 0, 0
		for got < records {
			switch o := c.next(t); o.str("op") {
			case "":
				got++
			case "cursor":
				if d := time.Since(last); d > 2500*time.Millisecond {
					t.Fatalf("a cursor after %v", d)
				}
				last = time.Now()
				// One a second was made; that this client reads slowly may bring two near one another.
				if cursors++; cursors > 2+int(time.Since(began)/time.Second) {
					t.Fatalf("%d cursors in %v", cursors, time.Since(began))
				}
			}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if time.Since(began) < time.Minute || len(c.pings) < 2 {
			t.Fatalf("%d pings in %v", len(c.pings), time.Since(began))
		}
	})
}

func TestMetadataIsWhatClientsRouteBy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.Topic("orders", 2)
		c := n.open(t)
		c.send(t, `{"op":"metadata","id":1,"topic":"orders"}`, `{"op":"metadata","id":2,"topic":"x"}`)
		o := c.want(t, "metadata")
		raw, _ := json.Marshal(o["layout"])
		if o.num("id") != 1 || o.str("topic") != "orders" || !strings.Contains(string(raw), `"generation":1`) || !strings.Contains(string(raw), `"hi":4294967296,"id":1,`) {
			t.Fatalf("%s", raw)
		}
		if o = c.want(t, "error"); o.str("code") != "topic-not-found" {
			t.Fatal(o)
		}
	})
}

func TestGapsAndTheEndOfATopicAreSaid(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		topic := n.Topic("orders", 1)
		for range 5 {
			n.AppendValue(topic.Ref(0), "", `1`)
		}
		c := n.open(t)
		c.send(t, `{"op":"subscribe","topic":"orders","from":"earliest","credit":1}`)
		old := c.want(t, "subscribed").str("cursor")
		c.messages(t, 1)
		n.Retain(topic.Ref(0), 3)
		c.send(t, `{"op":"subscribe","id":2,"topic":"orders","cursor":"`+old+`"}`)
		if o := c.want(t, "subscribed", "cursor"); o["recovered"] != false {
			t.Fatal(o)
		}
		g := c.want(t, "gap")
		if g.str("sub") != "s2" || g.str("reason") != "expired" || g.str("requested") != "0:0" || g.str("earliest") != "0:3" || g.str("end") != "0:5" || g.str("cursor") == "" {
			t.Fatal(g)
		}
		if got := c.messages(t, 2); ids(got) != "0:3 0:4" {
			t.Fatal(ids(got))
		}
		c.send(t, `{"op":"subscribe","id":3,"topic":"orders","cursor":"`+g.str("cursor")+`","after":{"0":3}}`)
		if o := c.want(t, "subscribed", "cursor"); o["recovered"] != true {
			t.Fatal(o)
		}
		if got := c.messages(t, 1); ids(got) != "0:4" {
			t.Fatal(ids(got))
		}
		n.DeleteTopic(topic)
		ended := map[string]bool{}
		for range 2 {
			o := c.want(t, "error", "cursor")
			if o.str("code") != "topic-not-found" {
				t.Fatal(o)
			}
			ended[o.str("sub")] = true
		}
		if !ended["s2"] || !ended["s3"] {
			t.Fatal(ended)
		}
		c.send(t, `{"op":"unsubscribe","id":4,"sub":"s2"}`)
		if o := c.want(t, "error", "cursor"); o.str("field") != "sub" {
			t.Fatal(o)
		}
	})
}

func TestTheAddressCanNameASubscription(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		topic := n.Topic("orders", 2)
		start, err := n.hub.Resolve(t.Context(), deliver.Request{Topic: topic, From: "latest", Filter: deliver.Filter{KeyPrefix: "a"}})
		if err != nil {
			t.Fatal(err)
		}
		n.AppendValue(topic.Ref(0), "b", `1`)
		n.AppendValue(topic.Ref(1), "ab", `1`)
		c := n.dial(t, "?subscription="+deliver.ReferenceTo(start).String(), false)
		c.want(t, "welcome")
		if o := c.want(t, "subscribed"); o["recovered"] != true || o["id"] != nil {
			t.Fatal(o)
		}
		if got := c.messages(t, 1); ids(got) != "1:0" {
			t.Fatal(ids(got))
		}
	})
}

// TestResumeIsExact cuts a reader 20 times; cursor and after bring it back to
// exactly where it was.
func TestResumeIsExact(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		topic := n.Topic("orders", 3)
		total := 0
		write := func(count int) {
			for range count {
				n.AppendValue(topic.Ref(ident.Index(total%3)), "", fmt.Sprint(total))
				total++
			}
		}
		write(300)
		seen := map[string]int{}
		last := map[int]int{}
		cursor := ""
		for cut := range 21 {
			c := n.open(t)
			if cursor == "" {
				c.send(t, `{"op":"subscribe","topic":"orders","from":"earliest"}`)
			} else {
				after, _ := json.Marshal(last)
				c.send(t, fmt.Sprintf(`{"op":"subscribe","topic":"orders","cursor":%q,"after":%s}`, cursor, after))
			}
			s := c.want(t, "subscribed")
			cursor = s.str("cursor")
			if want := cut > 0; s["recovered"] != want {
				t.Fatalf("cut %d: %v", cut, s)
			}
			stop := 40 * (cut + 1)
			if cut == 20 {
				write(1000 - total)
				stop = 1000
			}
			for len(seen) < stop {
				write(min(1, 900-min(total, 900)))
				o := c.next(t)
				switch {
				case o.str("op") == "cursor":
					cursor, last = o.str("cursor"), map[int]int{}
				case o.str("op") == "":
					p, off := o.num("partition"), o.num("offset")
					seen[fmt.Sprint(p, ":", off)]++
					if prev, ok := last[p]; ok && off != prev+1 {
						t.Fatalf("partition %d: %d after %d", p, off, prev)
					}
					last[p] = off
				}
				if cut%3 == 0 && len(seen)%10 == 0 {
					time.Sleep(time.Second)
				}
			}
			c.vanish()
		}
		for place, times := range seen {
			if times != 1 {
				t.Fatalf("%s came %d times", place, times)
			}
		}
		if len(seen) != 1000 {
			t.Fatalf("%d of 1000", len(seen))
		}
	})
}

package session_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/gateway/access"
	"tidewire/gateway/connection"
	"tidewire/gateway/deliver"
	"tidewire/gateway/guard"
	"tidewire/gateway/quota"
	"tidewire/gateway/session"
	"tidewire/internal/testkit/activity"
	"tidewire/internal/testkit/metric"
)

const authKey = "a secret of tests, longer than 32 bytes"

// guarded is a node that asks who is calling.
type guarded struct {
	*node
	door      *guard.Guard
	connected *connection.Set
}

func newGuarded(t *testing.T) *guarded {
	g := &guarded{connected: connection.New()}
	g.node = newNode(t, func(c *session.Config) {
		g.door = guard.New(guard.Config{Verifier: &access.Verifier{Key: []byte(authKey)}, Registerer: c.Registerer})
		c.Guard, c.Connections = g.door, g.connected
	})
	activity.Start(t, g.connected.Run)
	return g
}

func (g *guarded) token(t *testing.T, sub string, lasts time.Duration, rights map[access.Right][]string) string {
	t.Helper()
	now := time.Now()
	s, err := access.Mint([]byte(authKey), access.Claims{Subject: sub, From: now, Until: now.Add(lasts), Topics: rights})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// reference is the id of a subscription to a topic, as POST /topics/subscribe
// hands it out.
func (g *guarded) reference(t *testing.T, topic string) string {
	t.Helper()
	start, err := g.hub.Resolve(t.Context(), deliver.Request{Topic: g.Snapshot().Topics[topic], DefaultFrom: deliver.Latest})
	if err != nil {
		t.Fatal(err)
	}
	return deliver.ReferenceTo(start).String()
}

func rights(publish, subscribe string) map[access.Right][]string {
	return map[access.Right][]string{access.Publish: {publish}, access.Subscribe: {subscribe}}
}

func frame(fields map[string]any) string {
	b, _ := json.Marshal(fields)
	return string(b)
}

func hello(token string) string { return frame(map[string]any{"op": "hello", "id": 1, "token": token}) }

func auth(token string) string { return frame(map[string]any{"op": "auth", "id": 2, "token": token}) }

func TestHelloWithATokenOpensTheConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newGuarded(t)
		ref := n.Topic("orders", 1).Ref(0)
		c := n.dial(t, "", false)
		for _, line := range []string{
			`{"op":"subscribe","id":7,"topic":"orders"}`, `{"op":"publish","id":7,"topic":"orders","value":1}`,
			`{"op":"metadata","id":7,"topic":"orders"}`, `{"op":"hello","id":7}`,
			`{"op":"publish","id":7,"topic":"orders","value":,"producer":"0193b0a6-7c1e-7d0c-8f2a-3a1b2c3d4e5f","sequence":0,"partition":0}`,
		} {
			c.send(t, line)
			if o := c.want(t, "error"); o.str("code") != "unauthorized" && !strings.Contains(line, `"value":,`) {
				t.Errorf("%s: %v", line, o)
			}
		}
		c.send(t, hello(n.token(t, "ann", time.Hour, rights("orders", "orders"))))
		if o := c.want(t, "welcome"); o.num("id") != 1 || o.str("connection") == "" {
			t.Error(o)
		}
		c.send(t, `{"op":"subscribe","id":3,"topic":"orders"}`)
		c.want(t, "subscribed")
		n.AppendValue(ref, "", `1`)
		c.messages(t, 1)
		c.send(t, `{"op":"publish","id":4,"topic":"orders","value":2}`)
		c.want(t, "published", "cursor", "messages")
		all := n.connected.List(nil)
		if len(all) != 1 || all[0].Principal != "ann" || all[0].Subscriptions != 1 || all[0].Transport != "websocket" {
			t.Errorf("%+v", all)
		}
	})
}

func TestWhoDoesNotSayHelloIsClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newGuarded(t)
		n.Topic("orders", 1)
		for name, c := range map[string]struct {
			line   string
			after  time.Duration
			code   int
			reason string // of the error frame; "": there is none
		}{
			"silence":      {"", 10 * time.Second, 4501, ""},
			"no token":     {`{"op":"hello","id":1}`, 10 * time.Second, 4501, "missing"},
			"a forged":     {hello(n.token(t, "ann", time.Hour, nil) + "x"), 0, 4501, "signature"},
			"no JWT":       {hello("x"), 0, 4501, "malformed"},
			"expired":      {hello(n.token(t, "ann", -time.Minute, nil)), 0, 4003, "expired"},
			"auth expired": {auth(n.token(t, "ann", -time.Minute, nil)), 0, 4003, "expired"},
		} {
			began := time.Now()
			w := n.dial(t, "", false)
			if c.line != "" {
				w.send(t, c.line)
				if o := w.want(t, "error"); o.str("code") != "unauthorized" || o.str("reason") != c.reason {
					if c.reason != "signature" || o.str("reason") != "malformed" { // an odd length is no base64
						t.Errorf("%s: %v", name, o)
					}
				}
			}
			code, reason := w.closed(t)
			if took := time.Since(began); int(code) != c.code || reason == "" || took < c.after || took > c.after+time.Second {
				t.Errorf("%s: closed with %d %q after %s", name, code, reason, took)
			}
		}
		synctest.Wait()
		if n := len(n.connected.List(nil)); n != 0 {
			t.Errorf("%d are left", n)
		}
	})
}

// Before the keys of tokens have come nobody can say that one is bad, so its bearer is to
// come back.
func TestATokenThatCannotBeJudgedYetMeansLater(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t, func(c *session.Config) {
			c.Guard = guard.New(guard.Config{Verifier: &access.Verifier{}, KeysURL: "https://id.example.com/keys"})
		})
		b64 := base64.RawURLEncoding.EncodeToString
		for _, line := range []func(string) string{hello, auth} {
			w := n.dial(t, "", false)
			w.send(t, line(b64([]byte(`{"alg":"EdDSA"}`))+"."+b64([]byte(`{}`))+"."+b64(make([]byte, 64))))
			if o := w.want(t, "error"); o.str("code") != "draining" || o.str("retry_after") == "" {
				t.Errorf("%v", o)
			}
			if code, _ := w.closed(t); code != 1013 {
				t.Errorf("closed with %d", code)
			}
		}
	})
}

func TestATokensEndEndsTheConnectionUnlessItIsRefreshed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newGuarded(t)
		ref := n.Topic("orders", 1).Ref(0)
		all := rights("orders", "orders")
		began := time.Now()
		ends, lives := n.dial(t, "", false), n.dial(t, "", false)
		for _, c := range []*client{ends, lives} {
			c.send(t, hello(n.token(t, "ann", time.Minute, all)), `{"op":"subscribe","id":3,"topic":"orders"}`)
			c.want(t, "welcome")
			c.want(t, "subscribed")
		}
		time.Sleep(50 * time.Second)
		lives.send(t, auth(n.token(t, "ann", time.Minute, all)))
		if o := lives.want(t, "authorized"); o.num("id") != 2 || o.str("expires") != began.Add(110*time.Second).UTC().Format("2006-01-02T15:04:05.000Z") {
			t.Error(o)
		}
		n.AppendValue(ref, "", `1`)
		ends.messages(t, 1)
		lives.messages(t, 1)
		code, reason := ends.closed(t)
		if took := time.Since(began); code != 4003 || !strings.Contains(reason, "expired") || took < time.Minute || took > time.Minute+time.Second {
			t.Errorf("closed with %d %q after %s", code, reason, took)
		}
		n.AppendValue(ref, "", `2`)
		lives.messages(t, 1)
		// A bad token does no harm to one that is good still.
		lives.send(t, auth("x"))
		if o := lives.want(t, "error", "cursor"); o.str("code") != "unauthorized" {
			t.Error(o)
		}
		lives.send(t, auth(n.token(t, "bob", time.Hour, all)))
		if o := lives.want(t, "error", "cursor"); o.str("code") != "forbidden" {
			t.Error(o)
		}
		if code, _ := lives.closed(t); code != 4003 || time.Since(began) < 110*time.Second || time.Since(began) > 111*time.Second {
			t.Errorf("closed with %d after %s", code, time.Since(began))
		}
	})
}

func TestARefreshChecksTheSubscriptionsAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newGuarded(t)
		orders, news := n.Topic("orders", 1).Ref(0), n.Topic("news", 1).Ref(0)
		c := n.dial(t, "", false)
		c.send(t, hello(n.token(t, "ann", time.Hour, rights("-", "*"))), `{"op":"subscribe","id":3,"topic":"orders"}`, `{"op":"subscribe","id":4,"topic":"news"}`)
		c.want(t, "welcome")
		c.want(t, "subscribed")
		c.want(t, "subscribed")
		c.send(t, auth(n.token(t, "ann", time.Hour, rights("-", "news"))))
		if o := c.want(t, "error"); o.str("code") != "forbidden" || o.str("sub") != "s1" || o.str("right") != "subscribe" {
			t.Error(o)
		}
		c.want(t, "authorized")
		n.AppendValue(orders, "", `1`)
		n.AppendValue(news, "", `2`)
		if m := c.messages(t, 1)[0]; m.str("topic") != "news" {
			t.Error(m)
		}
		for line, right := range map[string]string{
			`{"op":"subscribe","id":5,"topic":"orders"}`:       "subscribe",
			`{"op":"publish","id":5,"topic":"news","value":1}`: "publish",
			`{"op":"publish","id":5,"topic":"news","value":1,"producer":"0193b0a6-7c1e-7d0c-8f2a-3a1b2c3d4e5f","sequence":0,"partition":0,"x":1}`: "publish",
			`{"op":"metadata","id":5,"topic":"orders"}`:          "",
			`{"op":"subscribe","id":5,"topic":"does-not-exist"}`: "subscribe",
		} {
			c.send(t, line)
			if o := c.want(t, "error", "cursor"); o.str("code") != "forbidden" || o.str("right") != right || o.num("id") != 5 {
				t.Errorf("%s: %v", line, o)
			}
		}
		if metric.Sum(t, n.reg, "gateway_access_refused_total") != 6 {
			t.Error(metric.Sum(t, n.reg, "gateway_access_refused_total"))
		}
	})
}

// The address of a connection names a subscription: it begins once it is known
// whose it is.
func TestTheSubscriptionOfTheAddressWaitsForHello(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newGuarded(t)
		ref := n.Topic("orders", 1).Ref(0)
		id := n.reference(t, "orders")
		c := n.dial(t, "?subscription="+id, false)
		c.send(t, hello(n.token(t, "ann", time.Hour, rights("-", "orders"))))
		c.want(t, "welcome")
		c.want(t, "subscribed")
		n.AppendValue(ref, "", `1`)
		c.messages(t, 1)
		c = n.dial(t, "?subscription="+id, false)
		c.send(t, hello(n.token(t, "ann", time.Hour, rights("orders", "-"))))
		c.want(t, "welcome")
		if o := c.want(t, "error"); o.str("code") != "forbidden" {
			t.Error(o)
		}
	})
}

func TestAnAdministratorClosesAConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newGuarded(t)
		n.Topic("orders", 1)
		c := n.dial(t, "", false)
		c.send(t, hello(n.token(t, "ann", time.Hour, rights("-", "orders"))), `{"op":"subscribe","id":3,"topic":"orders"}`)
		id := c.want(t, "welcome").str("connection")
		c.want(t, "subscribed")
		if !n.connected.Dismiss(id) {
			t.Fatal("not known")
		}
		if code, reason := c.closed(t); code != 1001 || reason == "" {
			t.Errorf("%d %q", code, reason)
		}
	})
}

// What the edge has found out about the caller comes with the request.
func TestACallerKnownAtTheUpgradeIsWelcomeAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newGuarded(t)
		n.Topic("orders", 1)
		grant, err := n.door.Token(n.token(t, "ann", time.Minute, rights("-", "orders")))
		if err != nil {
			t.Fatal(err)
		}
		n.wrap = func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				h.ServeHTTP(w, r.WithContext(access.In(r.Context(), grant)))
			})
		}
		began := time.Now()
		c := n.dial(t, "?subscription="+n.reference(t, "orders"), false)
		if o := c.want(t, "welcome"); o["id"] != nil {
			t.Error(o)
		}
		c.want(t, "subscribed")
		c.send(t, `{"op":"hello","id":9}`)
		if o := c.want(t, "welcome"); o.num("id") != 9 {
			t.Error(o)
		}
		if code, _ := c.closed(t); code != 4003 || time.Since(began) > time.Minute+time.Second {
			t.Errorf("%d after %s", code, time.Since(began))
		}
	})
}

func TestARefusedUpgradeIsCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newGuarded(t)
		req, _ := http.NewRequest("GET", "http://node/ws", nil)
		for k, v := range map[string]string{"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg==", "Origin": "https://evil.example"} {
			req.Header.Set(k, v)
		}
		res, err := n.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != 403 || metric.Sum(t, n.reg, "gateway_access_refused_total") != 1 {
			t.Errorf("%d, %v counted", res.StatusCode, metric.Sum(t, n.reg, "gateway_access_refused_total"))
		}
	})
}

// A client over its rate is read more slowly, and nothing of it is refused or
// overtakes.
func TestAPublisherOverItsRateIsSlowedDown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t, func(c *session.Config) { c.Quota = quota.New(10) })
		n.Topic("orders", 1)
		c := n.open(t)
		began := time.Now()
		lines := make([]string, 30)
		for i := range lines {
			lines[i] = frame(map[string]any{"op": "publish", "id": i + 1, "topic": "orders", "value": i})
		}
		c.send(t, lines...)
		for i := range lines {
			if o := c.want(t, "published"); o.num("id") != i+1 || o.num("offset") != i {
				t.Fatalf("%d: %v", i, o)
			}
		}
		if took := time.Since(began); took < 1900*time.Millisecond || took > 2200*time.Millisecond {
			t.Errorf("30 records at 10 a second, 10 of them at once, took %s", took)
		}
	})
}

package httpapi

import (
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidewire/gateway/access"
	"tidewire/gateway/deliver"
	"tidewire/gateway/guard"
	"tidewire/gateway/quota"
)

const testKey = "a secret of tests, longer than 32 bytes"

// newGuardedNode is a node that asks who is calling.
func newGuardedNode(t testing.TB) *node {
	return newNode(t, func(c *Config) {
		c.Guard = guard.New(guard.Config{
			Verifier: &access.Verifier{Key: []byte(testKey)}, Registerer: c.Registerer.(*prometheus.Registry), Logger: c.Logger.With(slog.String("component", "gateway")),
		})
	})
}

// token mints one that lasts for a minute unless the claims say otherwise.
func token(t testing.TB, c access.Claims) string {
	t.Helper()
	if c.From.IsZero() {
		c.From = time.Now()
	}
	if c.Until.IsZero() {
		c.Until = c.From.Add(time.Minute)
	}
	s, err := access.Mint([]byte(testKey), c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (n *node) bearer(c access.Claims) string { return "Authorization: Bearer " + token(n.t, c) }

func may(right access.Right, patterns ...string) map[access.Right][]string {
	return map[access.Right][]string{right: patterns}
}

// A probe that shows a token everywhere must not take an open node for dead.
func TestProbesJudgeNoToken(t *testing.T) {
	for _, n := range []*node{newNode(t), newGuardedNode(t)} {
		for _, path := range []string{"/healthz", "/readyz", "/readyz/"} {
			n.want(200, "GET", path, "", "Authorization: Bearer nonsense")
		}
	}
	newNode(t).want(400, "GET", "/topics/", "", "Authorization: Bearer nonsense")
}

// Every address is closed but for those listed here. A new one that nobody
// thought about fails.
func TestWhatIsNotOpenIsClosed(t *testing.T) {
	n := newGuardedNode(t)
	root := n.bearer(access.Claims{Subject: "root", Admin: true})
	n.want(201, "POST", "/topics/", `{"name":"orders"}`, root)
	open := []string{"/", "/assets/*", "/asyncapi.json", "/healthz", "/openapi.json", "/problems", "/problems/{code}", "/readyz"}
	known := map[string]string{} // what a token without any right may do
	for _, rt := range n.api.table {
		for _, m := range rt.methods() {
			if m == http.MethodOptions || m == http.MethodHead {
				continue
			}
			path := strings.NewReplacer("{topic}", "orders", "{node}", "node-a", "{connection}", "x", "{code}", "invalid", "{subscription}", "x", "*", "app.js").Replace(rt.pattern)
			if rt.pattern == "/ws" {
				continue // asks by itself: see package session
			}
			r := n.call(m, path, "")
			if asked := r.status == 401; asked == slices.Contains(open, rt.pattern) {
				t.Errorf("%s %s without a token: %d", m, rt.pattern, r.status)
			}
			if r.status == 401 && !strings.HasPrefix(r.header.Get("WWW-Authenticate"), "Bearer") {
				t.Errorf("%s %s: no WWW-Authenticate", m, rt.pattern)
			}
			r = n.call(m, path, "{}", n.bearer(access.Claims{Subject: "nobody"}))
			if !slices.Contains(open, rt.pattern) && r.status != 403 {
				known[m+" "+rt.pattern] = string(r.body)
			}
		}
	}
	for call, body := range map[string]string{
		"GET /topics":                              `{"topics":[]}`,           // it sees none
		"POST /tickets":                            `"ticket":`,               // for what it has no right to
		"POST /topics/subscribe":                   `"code":"invalid"`,        // the body names the topic
		"POST /replies/{inbox}":                    `"code":"requester-gone"`, // the inbox names it
		"GET /subscriptions/{subscription}/events": `"code":"not-found"`,      // the id names the topic
	} {
		if !strings.Contains(known[call], body) {
			t.Errorf("%s by who has no right: %s", call, known[call])
		}
		delete(known, call)
	}
	if len(known) > 0 {
		t.Errorf("by who has no right: %v", slices.Sorted(maps.Keys(known)))
	}
}

func TestEachCallNeedsItsRight(t *testing.T) {
	n := newGuardedNode(t)
	root := n.bearer(access.Claims{Subject: "root", Admin: true})
	writer := n.bearer(access.Claims{Subject: "ann", Topics: may(access.Publish, "orders.*")})
	reader := n.bearer(access.Claims{Subject: "bob", Topics: may(access.Subscribe, "orders.{sub}", "news")})
	for _, topic := range []string{"orders.bob", "orders.ann", "news"} {
		n.want(201, "POST", "/topics/", `{"name":"`+topic+`"}`, root)
	}
	subscription := func(topic string) string {
		return n.want(201, "POST", "/topics/subscribe", `{"topic":"`+topic+`"}`, root).json(t)["events"].(string)
	}
	for _, c := range []struct {
		method, path, body, who string
		status                  int
		names                   string // in the detail of a 403
	}{
		{"POST", "/topics/orders.bob", "1", writer, 201, ""},
		{"POST", "/topics/news", "1", writer, 403, `"publish" on topic "news"`},
		{"POST", "/topics/none", "1", writer, 403, `"publish"`}, // whether it exists is not told
		{"POST", "/topics/orders.none", "1", writer, 404, ""},
		{"GET", "/topics/orders.bob", "", writer, 403, `"subscribe"`},
		{"GET", "/topics/orders.bob", "", reader, 200, ""},
		{"GET", "/topics/orders.ann", "", reader, 403, `"subscribe" on topic "orders.ann"`},
		{"GET", "/topics/orders.ann/events", "", reader, 403, `"subscribe"`},
		{"POST", "/topics/subscribe", `{"topic":"orders.ann"}`, reader, 403, `"subscribe"`},
		{"POST", "/topics/subscribe", `{"topic":"news"}`, reader, 201, ""},
		{"GET", subscription("orders.ann"), "", reader, 403, `"subscribe"`},
		{"GET", "/topics/orders.bob/metadata", "", writer, 200, ""},
		{"GET", "/topics/orders.ann/metadata", "", reader, 403, `"orders.ann"`},
		{"POST", "/topics/", `{"name":"orders.new"}`, writer, 403, `"admin"`},
		{"PATCH", "/topics/orders.bob", `{}`, writer, 403, `"admin"`},
		{"DELETE", "/topics/orders.bob", "", writer, 403, `"admin"`},
		{"GET", "/nodes/", "", writer, 403, `"admin"`},
		{"GET", "/metrics", "", writer, 403, `"admin"`},
		{"GET", "/metrics", "", root, 200, ""},
		{"GET", "/connections/", "", reader, 403, `"admin"`},
		{"POST", "/topics/orders.bob/purge", `{}`, writer, 403, `"admin"`},
		{"POST", "/topics/orders.bob/purge", `{}`, root, 200, ""},
		{"DELETE", "/connections/x", "", reader, 403, `"admin"`},
		{"DELETE", "/connections/x", "", root, 404, ""},
		{"PATCH", "/topics/orders.bob", `{}`, root, 200, ""},
		{"GET", "/topics/orders.ann", "", root, 200, ""},
	} {
		r := n.call(c.method, c.path, c.body, c.who)
		if r.status != c.status || !strings.Contains(string(r.body), strings.ReplaceAll(c.names, `"`, `\"`)) {
			t.Errorf("%s %s: %d %s, want %d %s", c.method, c.path, r.status, r.body, c.status, c.names)
		}
	}
	lines := n.call("POST", "/topics/news", "{\"value\":1}\n", writer, ndjson)
	if lines.status != 403 {
		t.Errorf("lines: %d %s", lines.status, lines.body)
	}
	var seen []string
	for _, x := range n.want(200, "GET", "/topics/", "", reader).json(t)["topics"].([]any) {
		seen = append(seen, x.(map[string]any)["name"].(string))
	}
	if !slices.Equal(seen, []string{"news", "orders.bob"}) {
		t.Errorf("bob sees %v", seen)
	}
}

func TestATicketOpensOneStreamOnce(t *testing.T) {
	n := newGuardedNode(t)
	n.want(201, "POST", "/topics/", `{"name":"orders"}`, n.bearer(access.Claims{Admin: true}))
	reader := n.bearer(access.Claims{Subject: "bob", Topics: may(access.Subscribe, "orders")})
	ticket := func() string {
		return n.want(201, "POST", "/tickets", "", reader).json(t)["ticket"].(string)
	}
	one := ticket()
	s := n.stream(t, "GET", "/topics/orders/events?from=earliest&ticket="+one, "")
	n.want(201, "POST", "/topics/orders", "1", n.bearer(access.Claims{Admin: true}))
	if e := s.next(); e.name != "message" {
		t.Errorf("%+v", e)
	}
	if r := n.want(401, "GET", "/topics/orders/events?ticket="+one, ""); r.json(t)["reason"] != "ticket" {
		t.Errorf("a second time: %s", r.body)
	}
	n.want(401, "GET", "/topics/orders/events?ticket=nonsense", "")
	if r := n.want(401, "GET", "/topics/orders?ticket="+ticket(), ""); !strings.Contains(string(r.body), "a ticket is for streams") {
		t.Errorf("%s", r.body)
	}
	n.want(400, "GET", "/topics/orders/events?ticket="+ticket()+"&ticket=x", "")
	n.want(400, "GET", "/topics/orders/events?ticket="+ticket(), "", reader) // says twice who it is
	// A ticket is for streams: what it may open is no other call.
	n.want(401, "GET", "/topics/orders?ticket="+ticket(), "")
	n.want(401, "POST", "/tickets?ticket="+ticket(), "")
	// Its rights are those of its token.
	if r := n.want(403, "GET", "/topics/other/events?ticket="+ticket(), ""); r.json(t)["right"] != "subscribe" {
		t.Errorf("%s", r.body)
	}
	if strings.Contains(n.log.String(), one) {
		t.Error("a ticket is in the log")
	}
}

func TestTokensComeByHeaderOrCookie(t *testing.T) {
	n := newGuardedNode(t)
	ann := token(t, access.Claims{Subject: "ann"})
	n.want(200, "GET", "/topics/", "", "Authorization: bearer "+ann)
	n.want(200, "GET", "/topics/", "", "Cookie: tidewire_token="+ann)
	n.want(401, "GET", "/topics/", "", "Cookie: tidewire_token="+ann+"; tidewire_token=x")
	n.want(401, "GET", "/topics/", "", "Authorization: Basic "+ann)
	n.want(401, "GET", "/topics/", "", "Authorization: Bearer ")
	n.want(400, "GET", "/topics/", "", "Authorization: Bearer "+ann, "Authorization: Bearer "+ann)
	n.want(401, "GET", "/topics/?token="+ann, "")
	// A foreign page's browser sends the cookie along: it does not count.
	n.want(401, "GET", "/topics/", "", "Cookie: tidewire_token="+ann, "Origin: https://elsewhere.example")
	r := n.want(200, "GET", "/topics/", "", "Cookie: tidewire_token="+ann, "Origin: https://app.example.com")
	if r.header.Get("Access-Control-Allow-Credentials") != "true" {
		t.Errorf("%v", r.header)
	}
}

func TestAForeignPageOpensNoStream(t *testing.T) {
	n := newNode(t)
	n.topic("orders", "")
	for _, path := range []string{"/topics/orders/events", n.want(201, "POST", "/topics/subscribe", `{"topic":"orders"}`).json(t)["events"].(string)} {
		if r := n.want(403, "GET", path, "", "Origin: https://elsewhere.example"); r.json(t)["code"] != "forbidden" || r.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %s", path, r.body)
		}
	}
}

func TestRefusalsAreCountedAndLoggedWithoutTheToken(t *testing.T) {
	n := newGuardedNode(t)
	good := token(t, access.Claims{Subject: "ann"})
	forged := good[:len(good)-4] + "AAAA"
	n.want(401, "GET", "/topics/", "", "Authorization: Bearer "+forged)
	n.want(403, "GET", "/nodes/", "", "Authorization: Bearer "+good)
	page := string(n.want(200, "GET", "/metrics", "", n.bearer(access.Claims{Admin: true})).body)
	for _, line := range []string{
		`gateway_access_refused_total{reason="signature",transport="http"} 1`, `gateway_access_refused_total{reason="admin",transport="http"} 1`,
		`gateway_access_refused_total{reason="expired",transport="` + deliver.SSE + `"} 0`, `gateway_access_refused_total{reason="expired",transport="` + deliver.WebSocket + `"} 0`,
	} {
		if !strings.Contains(page, line) {
			t.Errorf("metrics lack %s", line)
		}
	}
	log := n.log.String()
	if !strings.Contains(log, "reason=signature") || !strings.Contains(log, "principal=ann") {
		t.Errorf("log: %s", log)
	}
	for part := range strings.SplitSeq(good, ".") {
		if strings.Contains(log, part) || strings.Contains(page, part) {
			t.Error("part of a token is shown")
		}
	}
}

// One principal's key does not answer for another's record.
func TestIdempotencyKeysAreEachPrincipalsOwn(t *testing.T) {
	n := newGuardedNode(t)
	n.want(201, "POST", "/topics/", `{"name":"orders"}`, n.bearer(access.Claims{Admin: true}))
	ann := n.bearer(access.Claims{Subject: "ann", Topics: may(access.Publish, "*")})
	bob := n.bearer(access.Claims{Subject: "bob", Topics: may(access.Publish, "*")})
	const key = "Idempotency-Key: one"
	n.want(201, "POST", "/topics/orders", "1", ann, key)
	n.want(201, "POST", "/topics/orders", "2", bob, key)
	n.want(200, "POST", "/topics/orders", "1", ann, key)
	n.want(422, "POST", "/topics/orders", "2", ann, key)
}

func TestAClientOverItsRateIsThrottled(t *testing.T) {
	n := newNode(t, func(c *Config) {
		c.Quota = quota.New(2)
		c.Guard = guard.New(guard.Config{Registerer: c.Registerer})
	})
	n.topic("orders", "")
	n.want(201, "POST", "/topics/orders", "1")
	n.want(201, "POST", "/topics/orders", "1")
	r := n.want(429, "POST", "/topics/orders", "1")
	if p := r.json(t); p["code"] != "throttled" || p["limit"] != "max_publish_rate" || r.header.Get("Retry-After") != "1" {
		t.Errorf("%s", r.body)
	}
	// Lines are taken as fast as they may come, and none is refused.
	if got := n.want(201, "POST", "/topics/orders", "{\"value\":1}\n{\"value\":2}\n", ndjson).lines(t); len(got) != 2 {
		t.Errorf("%v", got)
	}
	if page := string(n.want(200, "GET", "/metrics", "").body); !strings.Contains(page, `gateway_limits_refused_total{limit="max_publish_rate",transport="http"} 1`) {
		t.Error("it is not counted")
	}
}

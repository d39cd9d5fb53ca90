package httpapi

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"tidewire/gateway/deliver"
	"tidewire/internal/fault"
)

func TestATrailingSlashIsAcceptedEverywhere(t *testing.T) {
	n := newNode(t)
	n.topic("orders", "")
	for _, path := range []string{
		"/topics", "/topics/orders", "/topics/orders/metadata", "/nodes", "/nodes/node-a",
		"/healthz", "/readyz", "/metrics", "/openapi.json", "/asyncapi.json", "/problems", "/problems/invalid",
	} {
		n.want(http.StatusOK, "GET", path, "")
		n.want(http.StatusOK, "GET", path+"/", "")
	}
	if r := n.call("GET", "/topics/orders//", ""); r.status != http.StatusNotFound {
		t.Errorf("two slashes: status %d", r.status)
	}
}

func TestPathParametersAreDecodedOnce(t *testing.T) {
	for escaped, want := range map[string]string{
		"/topics/a%2Fb": "a/b", "/topics/a%252Fb": "a%2Fb", "/topics/a%20b": "a b", "/topics/%C3%A9": "é", "/%74opics/a%2Fb": "a/b",
	} {
		n := newNode(t)
		r := n.call("GET", escaped+"/metadata", "")
		if got := r.json(t)["topic"]; r.status != http.StatusNotFound || got != want {
			t.Errorf("%s: status %d, topic %q, want %q", escaped, r.status, got, want)
		}
	}
}

// A topic can have no reserved name, and an address of the API is no topic for
// the methods that it does not take.
func TestMethodsAreRefusedWithWhatIsAllowed(t *testing.T) {
	n := newNode(t)
	n.topic("orders", "")
	for _, c := range []struct{ method, path, allow string }{
		{"PUT", "/topics/", "GET, HEAD, OPTIONS, POST"},
		{"DELETE", "/topics/", "GET, HEAD, OPTIONS, POST"},
		{"GET", "/topics/subscribe", "OPTIONS, POST"},
		{"DELETE", "/topics/subscribe", "OPTIONS, POST"},
		{"PUT", "/topics/orders", "DELETE, GET, HEAD, OPTIONS, PATCH, POST"},
		{"POST", "/topics/orders/metadata", "GET, HEAD, OPTIONS"},
		{"HEAD", "/topics/orders/events", "GET, OPTIONS"},
		{"POST", "/healthz", "GET, HEAD, OPTIONS"},
		{"POST", "/ws", "GET, OPTIONS"},
		{"PURGE", "/topics/orders/", "DELETE, GET, HEAD, OPTIONS, PATCH, POST"},
	} {
		r := n.call(c.method, c.path, "")
		if r.status != http.StatusMethodNotAllowed || r.header.Get("Allow") != c.allow {
			t.Errorf("%s %s: status %d, Allow %q, want %q", c.method, c.path, r.status, r.header.Get("Allow"), c.allow)
		}
		if c.method != "HEAD" && r.json(t)["code"] != "method-not-allowed" {
			t.Errorf("%s %s: %s", c.method, c.path, r.body)
		}
		r = n.want(http.StatusNoContent, "OPTIONS", c.path, "")
		if r.header.Get("Allow") != c.allow {
			t.Errorf("OPTIONS %s: Allow %q, want %q", c.path, r.header.Get("Allow"), c.allow)
		}
	}
	if r := n.call("PURGE", "/nothing", ""); r.status != http.StatusNotFound {
		t.Errorf("PURGE of nothing: status %d", r.status)
	}
	r := n.want(http.StatusOK, "HEAD", "/topics/orders", "")
	if len(r.body) > 0 || r.header.Get("Content-Length") == "" {
		t.Errorf("HEAD: %d bytes, headers %v", len(r.body), r.header)
	}
}

func TestCallsOfLaterVersionsAreRefusedAloud(t *testing.T) {
	n := newNode(t)
	for path, what := range map[string]string{"/topics/repartition": "repartition"} {
		for _, method := range []string{"GET", "POST", "PUT", "DELETE"} {
			r := n.want(http.StatusNotFound, method, path, "")
			p := r.json(t)
			detail, _ := p["detail"].(string)
			if p["code"] != "not-found" || !strings.Contains(detail, "this version") || !strings.Contains(detail, what) {
				t.Errorf("%s %s: %s", method, path, r.body)
			}
		}
	}
}

// A name that points at this node is not yet its own: its owner's pages would
// own the node.
func TestPagesUnderAStrangeNameGetNothing(t *testing.T) {
	n := newNode(t)
	n.topic("orders", "")
	page := []string{"Host: evil.example:8080", "Origin: http://evil.example:8080"}
	for _, c := range [][2]string{{"DELETE", "/topics/orders"}, {"POST", "/topics/orders"}, {"GET", "/topics/orders"}, {"GET", "/ws"}} {
		r := n.want(http.StatusForbidden, c[0], c[1], "", page...)
		if p := r.json(t); p["code"] != "forbidden" || !strings.Contains(p["detail"].(string), "allowed_origins") || !strings.Contains(p["detail"].(string), "evil.example") {
			t.Errorf("%s %s: %s", c[0], c[1], r.body)
		}
	}
	n.want(http.StatusForbidden, "OPTIONS", "/topics/orders", "", append(page, "Access-Control-Request-Method: DELETE")...)
	// What is no page has whatever Host it was told.
	n.want(http.StatusCreated, "POST", "/topics/orders", "1", page[0])
	n.want(http.StatusOK, "GET", "/", "", page[0])
	// A page that came by address or by localhost is the node's own.
	for _, host := range []string{"127.0.0.1:9", "localhost:9", "[::1]:9"} {
		n.want(http.StatusCreated, "POST", "/topics/orders", "1", "Host: "+host, "Origin: http://"+host)
	}
}

func TestPagesOfOtherOriginsNeedToBeAllowed(t *testing.T) {
	n := newNode(t)
	n.topic("orders", "")
	own := "Origin: " + n.url
	allowed, foreign := "Origin: https://APP.example.com", "Origin: https://elsewhere.example"

	n.want(http.StatusCreated, "POST", "/topics/orders", "1", own)
	r := n.want(http.StatusCreated, "POST", "/topics/orders", "1", allowed)
	if r.header.Get("Access-Control-Allow-Origin") != "https://APP.example.com" || !strings.Contains(r.header.Get("Access-Control-Expose-Headers"), "Retry-After") {
		t.Errorf("allowed origin: %v", r.header)
	}
	for _, call := range []struct{ method, path string }{
		{"POST", "/topics/orders"}, {"POST", "/topics/"}, {"PATCH", "/topics/orders"}, {"DELETE", "/topics/orders"}, {"POST", "/topics/subscribe"},
	} {
		for _, origin := range []string{foreign, "Origin: null", "Origin: https://app.example.com.elsewhere.example"} {
			if r := n.want(http.StatusForbidden, call.method, call.path, "{}", origin); r.json(t)["code"] != "forbidden" || r.header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s %s from %s: %s", call.method, call.path, origin, r.body)
			}
		}
	}
	if r := n.want(http.StatusOK, "GET", "/topics/orders", "", foreign); r.header.Get("Access-Control-Allow-Origin") != "" {
		t.Error("a foreign page may read")
	}
	if got := n.memory.values("orders", 0); len(got) != 2 {
		t.Errorf("%d records were kept, want 2", len(got))
	}

	ask := []string{"Access-Control-Request-Method: POST", "Access-Control-Request-Headers: content-type,tidewire-h-trace"}
	r = n.want(http.StatusNoContent, "OPTIONS", "/topics/orders", "", append(ask, allowed)...)
	if h := r.header; h.Get("Access-Control-Allow-Headers") != "content-type,tidewire-h-trace" || !strings.Contains(h.Get("Access-Control-Allow-Methods"), "PATCH") || !slices.Contains(h.Values("Vary"), "Origin") {
		t.Errorf("preflight: %v", h)
	}
	n.want(http.StatusForbidden, "OPTIONS", "/topics/orders", "", append(ask, foreign)...)
}

func TestEveryAnswerIsSafeToShow(t *testing.T) {
	n := newNode(t)
	for _, path := range []string{"/topics/", "/nothing", "/problems/invalid", "/", "/assets/app.js", "/assets/none", "/metrics"} {
		h := n.call("GET", path, "").header
		if h.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(h.Get("Content-Security-Policy"), "frame-ancestors 'none'") {
			t.Errorf("%s: %v", path, h)
		}
	}
	r := n.want(http.StatusNotFound, "GET", "/problems/"+url.PathEscape("<script>"), "")
	if r.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("content type %q", r.header.Get("Content-Type"))
	}
}

func TestEveryCodeHasAPage(t *testing.T) {
	n := newNode(t)
	list := string(n.want(http.StatusOK, "GET", "/problems/", "").body)
	for _, k := range fault.Kinds() {
		page := n.want(http.StatusOK, "GET", "/problems/"+k.Code(), "")
		if !strings.HasPrefix(page.header.Get("Content-Type"), "text/html") || !strings.Contains(string(page.body), k.Code()) {
			t.Errorf("%s: %s", k.Code(), page.body)
		}
		if !strings.Contains(list, `"/problems/`+k.Code()+`"`) {
			t.Errorf("/problems/ does not list %s", k.Code())
		}
	}
}

func TestReadinessGivesItsReasons(t *testing.T) {
	n := newNode(t)
	n.want(http.StatusOK, "GET", "/readyz", "")
	n.ready = []error{fault.New(fault.Draining, "the node is shutting down"), errors.New("the disk is gone")}
	r := n.want(http.StatusServiceUnavailable, "GET", "/readyz", "")
	p := r.json(t)
	reasons, _ := p["reasons"].([]any)
	if p["code"] != "draining" || len(reasons) != 2 || reasons[1] != "the disk is gone" || r.header.Get("Retry-After") == "" {
		t.Errorf("%s, headers %v", r.body, r.header)
	}
	n.want(http.StatusOK, "GET", "/healthz", "")
}

// broken is a Reader that breaks its invariants.
type broken struct{ Reader }

func (broken) Resolve(context.Context, deliver.Request) (deliver.Start, error) {
	panic("an invariant is broken: \x00secret")
}

func TestAPanicIsAnswered(t *testing.T) {
	n := newNode(t)
	n.topic("orders", "")
	n.api.cfg.Reader = broken{}
	r := n.want(http.StatusInternalServerError, "GET", "/topics/orders", "")
	p := r.json(t)
	id, _ := p["request"].(string)
	if p["code"] != "internal" || id == "" || strings.Contains(string(r.body), "secret") {
		t.Errorf("%s", r.body)
	}
	if log := n.log.String(); !strings.Contains(log, id) || !strings.Contains(log, "secret") || !strings.Contains(log, "router_test.go") {
		t.Errorf("the log does not explain request %s: %s", id, log)
	}
	n.want(http.StatusOK, "GET", "/healthz", "")
}

// failing is a Control whose errors nobody classified.
type failing struct{ Controller }

func (failing) DeleteTopic(context.Context, string) error { return errors.New("secret of the disk") }

func TestAnUnexpectedErrorStaysInTheLog(t *testing.T) {
	n := newNode(t)
	n.topic("orders", "")
	n.api.cfg.Control = failing{}
	r := n.want(http.StatusInternalServerError, "DELETE", "/topics/orders", "")
	id, _ := r.json(t)["request"].(string)
	if id == "" || strings.Contains(string(r.body), "secret") {
		t.Errorf("%s", r.body)
	}
	if log := n.log.String(); !strings.Contains(log, id) || !strings.Contains(log, "secret of the disk") {
		t.Errorf("log: %s", log)
	}
}

// The metrics are OpenMetrics for whoever does not ask for something else.
func TestMetricsFormats(t *testing.T) {
	n := newNode(t)
	n.call("GET", "/topics/", "")
	for accept, want := range map[string]string{
		"":    "application/openmetrics-text",
		"*/*": "application/openmetrics-text",
		"application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1": "application/openmetrics-text",
		"text/plain":          "text/plain",
		"text/html,*/*;q=0.8": "text/plain",
	} {
		r := n.want(http.StatusOK, "GET", "/metrics", "", "Accept: "+accept)
		if got := r.header.Get("Content-Type"); !strings.HasPrefix(got, want) {
			t.Errorf("Accept %q: content type %q, want %s", accept, got, want)
		}
		if end := strings.HasSuffix(string(r.body), "# EOF\n"); end != (want != "text/plain") {
			t.Errorf("Accept %q: ends with # EOF: %v", accept, end)
		}
	}
}

func TestMetricsCountByRoute(t *testing.T) {
	n := newNode(t)
	n.call("GET", "/topics/none/metadata", "")
	n.call("BREW", "/topics/none/metadata", "")
	r := n.want(http.StatusOK, "GET", "/metrics", "", "Accept: application/openmetrics-text; version=1.0.0")
	if !strings.HasPrefix(r.header.Get("Content-Type"), "application/openmetrics-text") {
		t.Errorf("content type %q", r.header.Get("Content-Type"))
	}
	for _, want := range []string{
		`gateway_http_requests_total{method="GET",route="/topics/{topic}/metadata",status="404"} 1`,
		`gateway_http_requests_total{method="other",route="none",status="405"} 1`,
	} {
		if !strings.Contains(string(r.body), want) {
			t.Errorf("no %s in\n%s", want, r.body)
		}
	}
}

// A WebSocket takes the connection over, through all that the edge does.
func TestAWebSocketPassesTheEdge(t *testing.T) {
	n := newNode(t)
	conn, _, err := websocket.Dial(t.Context(), n.url+"/ws/?subscription=x", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	if err := conn.Write(t.Context(), websocket.MessageText, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, b, err := conn.Read(t.Context()); err != nil || string(b) != "hello" {
		t.Fatalf("%q, %v", b, err)
	}
	conn.Close(websocket.StatusNormalClosure, "")
}

// A node speaks HTTP/2 in clear text to those who begin with it.
func TestHTTP2WithoutTLS(t *testing.T) {
	n := newNode(t)
	n.topic("orders", "")
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &protocols}
	defer transport.CloseIdleConnections()
	req, _ := http.NewRequest("GET", n.url+"/topics/orders/events?from=latest", nil)
	res, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.ProtoMajor != 2 {
		t.Fatalf("protocol %s", res.Proto)
	}
	post, _ := http.NewRequest("POST", n.url+"/topics/orders?key=a", strings.NewReader(`{"n":1}`))
	sent, err := transport.RoundTrip(post)
	if err != nil {
		t.Fatal(err)
	}
	sent.Body.Close()
	if sent.StatusCode != http.StatusCreated {
		t.Fatalf("status %d", sent.StatusCode)
	}
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			if !strings.Contains(data, `"value":{"n":1}`) {
				t.Errorf("event %s", data)
			}
			return
		}
	}
	t.Fatalf("the stream ended: %v", lines.Err())
}

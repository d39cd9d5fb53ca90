package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	"tidewire/gateway/access"
	"tidewire/internal/fault"
)

// document is openapi.json as it is served, ready to hold calls against.
type document struct {
	t      *testing.T
	doc    *openapi3.T
	router routers.Router
	seen   map[string]bool // "operation status" that some call was answered with
}

// parsed is the document with its router, which checks it whole, examples
// included. That takes a while, so it is done once.
var parsed = sync.OnceValues(func() (routers.Router, error) {
	doc, err := openapi3.NewLoader().LoadFromData(openAPI)
	if err != nil {
		return nil, err
	}
	return legacy.NewRouter(doc)
})

func loadDocument(t *testing.T) *document {
	t.Helper()
	router, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	// What is neither JSON nor plain text is described as a string.
	openapi3filter.RegisterBodyDecoder("*/*", func(b io.Reader, _ http.Header, _ *openapi3.SchemaRef, _ openapi3filter.EncodingFn) (any, error) {
		s, err := io.ReadAll(b)
		return string(s), err
	})
	t.Cleanup(func() { openapi3filter.UnregisterBodyDecoder("*/*") })
	anything, _ := http.NewRequest("GET", "/healthz", nil)
	route, _, err := router.FindRoute(anything)
	if err != nil {
		t.Fatal(err)
	}
	return &document{t: t, doc: route.Spec, router: router, seen: map[string]bool{}}
}

// check holds one call and its answer against the document. Calls that were
// refused need not be as described; what refuses them must.
func (d *document) check(req *http.Request, body []byte, res *http.Response, answer []byte) {
	d.t.Helper()
	r := req.Clone(d.t.Context())
	r.URL = &url.URL{Path: req.URL.Path, RawQuery: req.URL.RawQuery}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if r.Header.Get("Content-Type") == "" && json.Valid(body) {
		r.Header.Set("Content-Type", "application/json") // what a body without a type is taken for
	}
	if d.doc.Paths.Value(r.URL.Path+"/") != nil {
		r.URL.Path += "/"
	} else if d.doc.Paths.Value(r.URL.Path) == nil && len(r.URL.Path) > 1 {
		r.URL.Path = strings.TrimSuffix(r.URL.Path, "/")
	}
	route, params, err := d.router.FindRoute(r)
	if err != nil {
		if res.StatusCode < 400 && r.Method != http.MethodOptions && r.Method != http.MethodHead {
			d.t.Errorf("%s %s was answered %d: %v", req.Method, req.URL, res.StatusCode, err)
		}
		return
	}
	answered := fmt.Sprintf("%s %d", route.Operation.OperationID, res.StatusCode)
	if res.StatusCode >= 400 {
		var p struct{ Code string }
		_ = json.Unmarshal(answer, &p)
		if answered += " " + p.Code; d.seen[answered] {
			return // compiling the schemas costs more than one more example is worth
		}
	}
	d.seen[answered] = true
	in := &openapi3filter.RequestValidationInput{
		Request: r, PathParams: params, Route: route,
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc},
	}
	if res.StatusCode < 300 {
		if err := openapi3filter.ValidateRequest(d.t.Context(), in); err != nil {
			d.t.Errorf("%s %s with %.200q was taken, but is not as described: %v", req.Method, req.URL, body, err)
		}
	}
	out := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: res.StatusCode, Header: res.Header, Options: in.Options}
	if err := openapi3filter.ValidateResponse(d.t.Context(), out.SetBodyBytes(answer)); err != nil {
		d.t.Errorf("%s %s was answered %d %.300q: %v", req.Method, req.URL, res.StatusCode, answer, err)
	}
}

// fits holds a value against a schema by name.
func (d *document) fits(schema string, b []byte) {
	d.t.Helper()
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		d.t.Fatal(err)
	}
	if err := d.doc.Components.Schemas[schema].Value.VisitJSON(v, openapi3.EnableJSONSchema2020()); err != nil {
		d.t.Errorf("%s is no %s: %v", b, schema, err)
	}
}

func TestTheDocumentDescribesEveryRoute(t *testing.T) {
	d, n := loadDocument(t), newNode(t)
	served := map[string][]string{}
	for _, rt := range n.api.table {
		if strings.HasPrefix(rt.pattern, "/assets/") {
			continue // files of the page
		}
		methods := slices.DeleteFunc(rt.methods(), func(m string) bool { return m == http.MethodHead || m == http.MethodOptions })
		served[rt.pattern] = methods
	}
	for path, item := range d.doc.Paths.Map() {
		pattern := strings.TrimSuffix(path, "/")
		if pattern == "" {
			pattern = "/"
		}
		var methods []string
		for m := range item.Operations() {
			methods = append(methods, m)
		}
		slices.Sort(methods)
		if !slices.Equal(methods, served[pattern]) {
			t.Errorf("%s: described %v, served %v", path, methods, served[pattern])
		}
		delete(served, pattern)
	}
	if len(served) > 0 {
		t.Errorf("not described: %v", served)
	}
}

func TestTheDocumentHasEveryCode(t *testing.T) {
	d := loadDocument(t)
	var listed []string
	for _, v := range d.doc.Components.Schemas["Code"].Value.Enum {
		listed = append(listed, v.(string))
	}
	for _, k := range fault.Kinds() {
		if !slices.Contains(listed, k.Code()) {
			t.Errorf("%s is not listed", k.Code())
		}
	}
	if len(listed) != len(fault.Kinds()) {
		t.Errorf("%d codes are listed, there are %d", len(listed), len(fault.Kinds()))
	}
	// Each example stands where its code belongs.
	for path, item := range d.doc.Paths.Map() {
		for method, op := range item.Operations() {
			for status, ref := range op.Responses.Map() {
				media := ref.Value.Content["application/problem+json"]
				if media == nil {
					continue
				}
				for name, example := range media.Examples {
					b, _ := json.Marshal(example.Value.Value)
					d.fits("Problem", b)
					var p struct {
						Code, Title string
						Status      int
					}
					_ = json.Unmarshal(b, &p)
					k, ok := fault.ByCode(p.Code)
					if !ok || name != p.Code || k.Title() != p.Title || k.Status() != p.Status || status != fmt.Sprint(p.Status) {
						t.Errorf("%s %s %s: example %s: %s", method, path, status, name, b)
					}
				}
			}
		}
	}
}

// The document is held against real answers: at least one of every success of
// every call, and whatever refuses the table of mistakes.
func TestAnswersAreAsDescribed(t *testing.T) {
	d, n := loadDocument(t), newNode(t)
	n.check = d.check
	const producer = "Tidewire-Producer: 0193b0a6-7c1e-7d0c-8f2a-3a1b2c3d4e5f"

	n.topic("orders", `"partitions":4,"replicas":1,"min_insync":1,"retention":{"age":"24h","bytes":65536},"compaction":false,"max_message_bytes":4096,"durability":"fsync","unclean":false,"idempotency_window":"1m30s"`)
	n.want(200, "POST", "/topics/", `{"name":"orders"}`)
	n.want(409, "POST", "/topics/", `{"name":"orders","partitions":8}`)
	n.topic("lone", "")
	n.want(200, "PATCH", "/topics/lone", `{"retention":{"age":"0s"}}`)
	n.want(200, "GET", "/topics", "")
	n.want(200, "GET", "/topics/orders/metadata", "")

	n.want(201, "POST", "/topics/orders?key=a&acks=leader&timeout=2s", `{"a":1}`, "Content-Type: application/json", "Tidewire-H-Trace: 7")
	n.want(201, "POST", "/topics/lone", `text`, "Content-Type: text/plain", "Idempotency-Key: i")
	n.want(200, "POST", "/topics/lone", `text`, "Content-Type: text/plain", "Idempotency-Key: i")
	n.want(422, "POST", "/topics/lone", `other`, "Content-Type: text/plain", "Idempotency-Key: i")
	n.want(201, "POST", "/topics/lone", "\xff", "Content-Type: application/octet-stream", "Tidewire-Key: é", "Tidewire-Partition: 0", "Tidewire-Acks: all", "Tidewire-Timeout: 1s")
	n.want(201, "POST", "/topics/lone?key=a", "", "Tidewire-Tombstone: true")
	n.want(201, "POST", "/topics/lone?partition=0", "1", "Content-Type: application/json", producer, "Tidewire-Sequence: 0")
	n.want(409, "POST", "/topics/lone?partition=0", "1", "Content-Type: application/json", producer, "Tidewire-Sequence: 7")
	n.want(202, "POST", "/topics/lone?acks=none", "1", "Content-Type: application/json")
	for _, lines := range []string{`{"key":"a","value":{"b":[1]},"headers":{"x":"y"}}` + "\n" + `{"value_base64":"AAE=","partition":2}` + "\n" + `{"key":"a","tombstone":true}` + "\n", "{\"value\":1}\nbad\n"} {
		r := n.call("POST", "/topics/orders", lines, ndjson)
		for line := range bytes.Lines(r.body) {
			d.fits("LineResult", line)
		}
		for line := range strings.Lines(lines) {
			if line != "bad\n" {
				d.fits("Line", []byte(line))
			}
		}
	}
	all := n.want(200, "GET", "/topics/lone?limit=1000&max_bytes=1048576&wait=0s", "").json(t)
	if len(all["messages"].([]any)) != 5 {
		t.Fatalf("%v", all)
	}
	n.want(200, "GET", "/topics/orders?cursor="+n.want(200, "GET", "/topics/orders?from=earliest&key_prefix=a", "").json(t)["cursor"].(string)+"&key_prefix=a", "")
	n.want(200, "GET", "/topics/orders?partition=1&offset=earliest", "")
	n.want(200, "GET", "/topics/lone?at=2026-01-31T15:04:05Z", "")
	n.want(409, "GET", "/topics/orders?partition=3&key=a", "")
	n.memory.expire(n.memory.Snapshot().Topics["lone"].Ref(0), 2)
	n.want(410, "GET", "/topics/lone?offset=0", "")
	n.want(410, "GET", "/topics/lone?cursor=x", "")
	n.want(200, "POST", "/topics/orders/purge", `{"before":{"3":0}}`)
	n.want(404, "POST", "/topics/orders/purge", `{"before":{"9":0}}`)
	n.want(400, "POST", "/topics/orders/purge", `{"before":{}}`)
	n.topic("stale", "")
	n.want(201, "POST", "/topics/stale", "1")
	if got := n.want(200, "POST", "/topics/stale/purge", `{}`); string(got.body) != `{"topic":"stale","partitions":[{"partition":0,"earliest":1}]}`+"\n" {
		t.Errorf("purged: %s", got.body)
	}
	n.want(410, "GET", "/topics/stale?offset=0", "")
	sub := n.want(201, "POST", "/topics/subscribe", `{"topic":"orders","from":"earliest","key_prefix":"a","partition":0}`).json(t)

	m := n.served("questions")
	x := n.ask("/requests/questions?timeout=1m&key=a", "1")
	n.want(202, "POST", "/replies/"+n.work("questions", m).inbox(), "2")
	x.wait()

	s := n.stream(t, "GET", "/topics/orders/events?from=earliest&key=a", "")
	d.fits("Message", []byte(s.next().data))
	n.stream(t, "GET", sub["events"].(string), "")
	d.seen["events 200"], d.seen["subscriptionEvents 200"] = true, true // they have no end to read to
	n.stream(t, "POST", "/topics/subscribe", `{"topic":"orders"}`, "Accept: text/event-stream")
	d.seen["subscribe 200"] = true
	d.seen["websocket 101"] = true // of package session

	askAboutGroups(t, n)

	n.want(200, "GET", "/nodes/", "")
	n.want(200, "GET", "/nodes/node-a", "")
	n.want(202, "POST", "/nodes/node-a/drain", "")
	n.want(202, "POST", "/nodes/node-a/drain", `{"cancel":true}`)
	n.want(404, "POST", "/nodes/none/drain", "")
	n.want(400, "POST", "/nodes/node-a/drain", `{"cancle":true}`)
	n.want(200, "GET", "/alerts", "")
	for _, c := range n.want(200, "GET", "/connections/", "").json(t)["connections"].([]any) {
		n.want(204, "DELETE", "/connections/"+c.(map[string]any)["connection"].(string), "")
	}
	n.want(404, "GET", "/connections/?node=none", "")
	guarded := newGuardedNode(t)
	guarded.check = d.check
	guarded.want(201, "POST", "/tickets", "", guarded.bearer(access.Claims{Subject: "ann"}))
	guarded.want(401, "POST", "/tickets", "")
	guarded.want(403, "POST", "/topics/", `{"name":"a"}`, guarded.bearer(access.Claims{Subject: "ann"}))
	n.want(200, "GET", "/healthz", "")
	n.want(200, "GET", "/readyz", "")
	n.ready = []error{fault.New(fault.Draining, "the node is shutting down")}
	n.want(503, "GET", "/readyz", "")
	n.want(200, "GET", "/metrics", "", "Accept: application/openmetrics-text; version=1.0.0")
	n.want(200, "GET", "/metrics", "", "Accept: text/plain")
	n.want(200, "GET", "/openapi.json", "")
	n.want(200, "GET", "/asyncapi.json", "")
	n.want(200, "GET", "/problems/", "")
	n.want(200, "GET", "/problems/invalid", "")
	n.want(200, "GET", "/", "")
	n.want(204, "DELETE", "/topics/orders", "")

	for path, item := range d.doc.Paths.Map() {
		for method, op := range item.Operations() {
			for status := range op.Responses.Map() {
				if status < "300" && !d.seen[op.OperationID+" "+status] {
					t.Errorf("%s %s: no call was answered %s", method, path, status)
				}
			}
		}
	}
}

package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"tidewire/gateway/access"
)

// asked is a request under way.
type asked struct {
	n      *node
	result chan answered
}

// wait gives its answer.
func (x asked) wait() got {
	x.n.t.Helper()
	return (<-x.result).checked(x.n)
}

// ask begins a request.
func (n *node) ask(path, body string, headers ...string) asked {
	x := asked{n, make(chan answered, 1)}
	go func() { x.result <- n.send("POST", path, body, headers...) }()
	return x
}

// served makes a topic with one member, w1 of group responders.
func (n *node) served(topic string) joined {
	n.t.Helper()
	n.topic(topic, `"partitions":1`)
	n.want(201, "POST", "/groups/"+topic+"/register", `{"group":"responders","mode":"shared","from":"earliest"}`)
	return n.join(topic, "responders", "w1")
}

// request is what a member got.
type request struct {
	headers map[string]any
	value   any
	offset  int
}

func (r request) inbox() string { return fmt.Sprint(r.headers["Tidewire-Reply-To"]) }

// work takes the next request.
func (n *node) work(topic string, m joined) request {
	n.t.Helper()
	list := n.want(200, "GET", "/groups/"+topic+"/responders/messages?wait=10s&limit=1&"+m.query, "").json(n.t)["messages"].([]any)
	if len(list) != 1 {
		n.t.Fatalf("%d messages", len(list))
	}
	x := list[0].(map[string]any)
	r := request{x["headers"].(map[string]any), x["value"], int(x["offset"].(float64))}
	n.want(200, "POST", "/groups/"+topic+"/responders/ack", fmt.Sprintf(`{%s,"ack":[{"partition":0,"offset":%d}]}`, m.body, r.offset))
	return r
}

func TestARequestIsAnsweredByItsReply(t *testing.T) {
	n := newNode(t)
	d := loadDocument(t)
	n.check = d.check
	m := n.served("orders")
	x := n.ask("/requests/orders?timeout=10s&key=a", `{"sku":7}`, "Content-Type: application/json", "Tidewire-H-Trace: 9", "Origin: https://app.example.com")
	r := n.work("orders", m)
	if r.headers["trace"] != "9" || r.headers["Tidewire-Correlation-Id"] == nil || r.headers["Tidewire-Deadline"] == nil || fmt.Sprint(r.value) != "map[sku:7]" {
		t.Errorf("%+v", r)
	}
	if back := n.want(202, "POST", "/replies/"+r.inbox(), "3 left", "Content-Type: text/plain; charset=utf-8", "Tidewire-H-Shop: north"); len(back.body) != 0 {
		t.Errorf("%q", back.body)
	}
	a := x.wait()
	if a.status != 200 || string(a.body) != "3 left" || a.header.Get("Content-Type") != "text/plain; charset=utf-8" || a.header.Get("Tidewire-H-Shop") != "north" ||
		a.header.Get("Tidewire-Status") != "" || a.header.Get("Tidewire-Correlation-Id") != r.headers["Tidewire-Correlation-Id"] || !strings.Contains(a.header.Get("Content-Security-Policy"), "sandbox") {
		t.Errorf("%d %q %v", a.status, a.body, a.header)
	}
	if seen := a.header.Get("Access-Control-Expose-Headers"); !strings.HasSuffix(seen, "Tidewire-Status, Tidewire-H-shop") {
		t.Errorf("a page may see %s", seen)
	}
	// A second reply, a late one and one to nowhere come to nobody.
	for _, to := range []string{r.inbox(), "x", "..", strings.Repeat("A", 200), strings.ToLower(r.inbox())} {
		if p := n.want(410, "POST", "/replies/"+to, "1").json(t); p["code"] != "requester-gone" {
			t.Errorf("%s: %v", to, p)
		}
	}
	if w := n.asks.Waiting(); w != 0 {
		t.Errorf("%d wait", w)
	}
}

func TestARespondersFailureIsItsOwn(t *testing.T) {
	n := newNode(t)
	n.check = loadDocument(t).check
	m := n.served("orders")
	x := n.ask("/requests/orders", "1")
	r := n.work("orders", m)
	n.want(400, "POST", "/replies/"+r.inbox(), "1", "Tidewire-Status: 200")
	n.want(400, "POST", "/replies/"+r.inbox(), "1", "Tidewire-Status: +422")
	n.want(202, "POST", "/replies/"+r.inbox(), `{"why":"sold out"}`, "Tidewire-Status: 422", "Content-Type: application/problem+json")
	if a := x.wait(); a.status != 422 || a.header.Get("Tidewire-Status") != "422" || string(a.body) != `{"why":"sold out"}` || a.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%d %q %v", a.status, a.body, a.header)
	}
	// Ours are told from it by what they lack.
	if a := n.want(504, "POST", "/requests/orders?timeout=20ms", "1"); a.header.Get("Tidewire-Status") != "" || a.json(t)["code"] != "reply-timeout" {
		t.Errorf("%v", a.header)
	}
}

func TestARequestInTwoLines(t *testing.T) {
	n := newNode(t)
	d := loadDocument(t)
	m := n.served("orders")
	for _, c := range []struct{ reply, status, want string }{
		{`{"n": 1}`, "", `{"op":"reply","content_type":"application/json","headers":{"a":"b"},"value":{"n":1}}`},
		{`"no"`, "409", `{"op":"reply","status":409,"content_type":"application/json","headers":{"a":"b"},"value":"no"}`},
	} {
		req, _ := http.NewRequest("POST", n.url+"/requests/orders", strings.NewReader("1"))
		req.Header.Set("Accept", "application/x-ndjson")
		req.Header.Set("Tidewire-Correlation-Id", "c"+c.status)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		dec := json.NewDecoder(res.Body)
		var line json.RawMessage
		if err := dec.Decode(&line); err != nil { // it comes before anybody replies
			t.Fatal(err)
		}
		d.fits("Accepted", line)
		r := n.work("orders", m)
		if want := fmt.Sprintf(`{"op":"accepted","partition":0,"offset":%d,"correlation":"c%s","duplicate":false}`, r.offset, c.status); string(line) != want {
			t.Errorf("got  %s\nwant %s", line, want)
		}
		headers := []string{"Content-Type: application/json", "Tidewire-H-A: b"}
		if c.status != "" {
			headers = append(headers, "Tidewire-Status: "+c.status)
		}
		n.want(202, "POST", "/replies/"+r.inbox(), c.reply, headers...)
		if err := dec.Decode(&line); err != nil || string(line) != c.want {
			t.Errorf("got  %s, %v\nwant %s", line, err, c.want)
		}
		d.fits("Reply", line)
		if _, err := dec.Token(); err != io.EOF {
			t.Error(err)
		}
		_ = res.Body.Close()
	}
	late := n.want(200, "POST", "/requests/orders?timeout=20ms", "1", "Accept: application/x-ndjson")
	if lines := strings.Split(strings.TrimSpace(string(late.body)), "\n"); len(lines) != 2 || !strings.Contains(lines[1], `"op":"error","code":"reply-timeout"`) {
		t.Errorf("%s", late.body)
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	n := newNode(t)
	n.check = loadDocument(t).check
	n.topic("orders", `"max_message_bytes":1024,"idempotency_window":"10s"`)
	if p := n.want(503, "POST", "/requests/orders", "1").json(t); p["code"] != "no-responders" || !strings.Contains(p["detail"].(string), "tidewire respond orders") {
		t.Error(p)
	}
	n.want(201, "POST", "/groups/orders/register", `{"group":"g"}`)
	n.want(503, "POST", "/requests/orders", "1") // a group that has no member
	if end := n.want(200, "GET", "/topics/orders", "").json(t)["messages"].([]any); len(end) != 0 {
		t.Error("no-responders publishes nothing:", end)
	}
	n.join("orders", "g", "w1")
	for _, c := range []struct {
		status                int
		path, body, header, a string // what the answer has
	}{
		{404, "/requests/none", "1", "", "topic-not-found"},
		{400, "/requests/_own", "1", "", "reserved-name"},
		{400, "/requests/orders?timeout=5m1s", "1", "", "timeout"},
		{400, "/requests/orders?timeout=0s", "1", "", "timeout"},
		{400, "/requests/orders?timeout=11s", "1", "Tidewire-Correlation-Id: c", "idempotency_window"},
		{400, "/requests/orders", "1", "Tidewire-Correlation-Id: a b", "correlation"},
		{400, "/requests/orders", "1", "Idempotency-Key: c", "Tidewire-Correlation-Id"},
		{400, "/requests/orders", "1", "Tidewire-Correlation: c", "Tidewire-Correlation-Id"},
		{400, "/requests/orders?partition=0", "1", "", "partition"},
		{400, "/requests/orders", "{", "Content-Type: application/json", "JSON"},
		{413, "/requests/orders", strings.Repeat("x", 1025), "", "max_message_bytes"},
		{413, "/requests/orders", strings.Repeat("x", 1000), "", "max_message_bytes"}, // with the request's own headers
	} {
		headers := []string{}
		if c.header != "" {
			headers = append(headers, c.header)
		}
		if r := n.want(c.status, "POST", c.path, c.body, headers...); !strings.Contains(string(r.body), c.a) {
			t.Errorf("%s %s: %s", c.path, c.header, r.body)
		}
	}
	if w := n.asks.Waiting(); w != 0 {
		t.Errorf("%d wait", w)
	}
}

func TestARepeatIsOneRequest(t *testing.T) {
	n := newNode(t)
	n.check = loadDocument(t).check
	m := n.served("orders")
	const id = "Tidewire-Correlation-Id: c1"
	one, two := n.ask("/requests/orders", "1", id), n.ask("/requests/orders", "1", id)
	r := n.work("orders", m)
	if p := n.want(422, "POST", "/requests/orders", "2", id).json(t); p["code"] != "idempotency-key-reused" || !strings.Contains(p["detail"].(string), "correlation") {
		t.Error(p)
	}
	n.want(202, "POST", "/replies/"+r.inbox(), `"done"`)
	for _, x := range []asked{one, two, n.ask("/requests/orders", "1", id)} { // the last comes after the reply
		if a := x.wait(); a.status != 200 || string(a.body) != `"done"` {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	n.want(410, "POST", "/replies/"+r.inbox(), `"again"`)
	if list := n.want(200, "GET", "/topics/orders", "").json(t)["messages"].([]any); len(list) != 1 {
		t.Errorf("%d records", len(list))
	}
}

// Who leaves takes its request along, unless it can be repeated.
func TestAClientThatLeaves(t *testing.T) {
	n := newNode(t)
	m := n.served("orders")
	for _, id := range []string{"", "c1"} {
		ctx, cancel := context.WithCancel(t.Context())
		req, _ := http.NewRequestWithContext(ctx, "POST", n.url+"/requests/orders", strings.NewReader("1"))
		if id != "" {
			req.Header.Set("Tidewire-Correlation-Id", id)
		}
		gone := make(chan error, 1)
		go func() {
			res, err := http.DefaultClient.Do(req)
			if err == nil {
				_ = res.Body.Close()
			}
			gone <- err
		}()
		r := n.work("orders", m)
		cancel()
		if err := <-gone; err == nil {
			t.Error("it was answered")
		}
		n.until(func() bool { return n.asks.Waiting() == 0 })
		if id == "" {
			n.want(410, "POST", "/replies/"+r.inbox(), "1")
			continue
		}
		n.want(202, "POST", "/replies/"+r.inbox(), `"kept"`)
		if a := n.want(200, "POST", "/requests/orders", "1", "Tidewire-Correlation-Id: "+id); string(a.body) != `"kept"` {
			t.Errorf("%s", a.body)
		}
	}
}

func TestRightsOfRequests(t *testing.T) {
	n := newGuardedNode(t)
	root := n.bearer(access.Claims{Subject: "root", Admin: true})
	n.want(201, "POST", "/topics/", `{"name":"orders"}`, root)
	n.want(201, "POST", "/groups/orders/register", `{"group":"responders","mode":"shared","from":"earliest"}`, root)
	asker := n.bearer(access.Claims{Subject: "ann", Topics: may(access.Request, "orders")})
	worker := n.bearer(access.Claims{Subject: "bob", Topics: may(access.Reply, "orders")})
	j := n.want(200, "POST", "/groups/orders/node", `{"group":"responders","member":"w1"}`, root).json(t)
	if p := n.want(403, "POST", "/requests/orders", "1", worker).json(t); p["right"] != "request" {
		t.Error(p)
	}
	x := n.ask("/requests/orders", "1", asker)
	got := n.want(200, "GET", fmt.Sprintf("/groups/orders/responders/messages?wait=10s&member=w1&epoch=%v", j["epoch"]), "", root).json(t)
	to := fmt.Sprint(got["messages"].([]any)[0].(map[string]any)["headers"].(map[string]any)["Tidewire-Reply-To"])
	if p := n.want(403, "POST", "/replies/"+to, "1", asker).json(t); p["right"] != "reply" || p["topic"] != "orders" {
		t.Error(p)
	}
	n.want(202, "POST", "/replies/"+to, "2", worker)
	if a := x.wait(); a.status != 200 || string(a.body) != "2" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestRequestsOfANodeAreBounded(t *testing.T) {
	n := newNode(t)
	n.check = loadDocument(t).check
	m := n.served("orders")
	var all []asked
	for range 32 {
		all = append(all, n.ask("/requests/orders?timeout=1m", "1"))
	}
	n.until(func() bool { return n.asks.Waiting() == 32 })
	if p := n.want(503, "POST", "/requests/orders", "1").json(t); p["code"] != "limit" || p["limit"] != "max_pending_requests" {
		t.Error(p)
	}
	for range all {
		n.want(202, "POST", "/replies/"+n.work("orders", m).inbox(), "1")
	}
	for _, x := range all {
		if a := x.wait(); a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
}

package httpapi

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// event is one server-sent event.
type event struct{ name, id, data string }

// follower reads events until it is closed.
type follower struct {
	t     *testing.T
	res   *http.Response
	lines *bufio.Reader
	id    string // the last one seen, as an EventSource keeps it
	first *event // came with the first id
}

func (n *node) stream(t *testing.T, method, path, body string, headers ...string) *follower {
	t.Helper()
	req, _ := http.NewRequest(method, n.url+path, strings.NewReader(body))
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s %s: status %d, %v", method, path, res.StatusCode, res.Header)
	}
	for name, want := range map[string]string{"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"} {
		if res.Header.Get(name) != want {
			t.Errorf("%s: %q", name, res.Header.Get(name))
		}
	}
	s := &follower{t: t, res: res, lines: bufio.NewReader(res.Body)}
	for s.id == "" { // where it begins, before there is any message
		if e := s.block(); e.name != "" {
			s.first = &e
		}
	}
	return s
}

func (s *follower) block() (e event) {
	s.t.Helper()
	for {
		line, err := s.lines.ReadString('\n')
		if err != nil {
			s.t.Fatalf("the stream ended: %v", err)
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch field {
		case "event":
			e.name = value
		case "id":
			e.id, s.id = value, value
		case "data":
			e.data = value
		case "":
			return e
		}
	}
}

func (s *follower) next() event {
	s.t.Helper()
	if e := s.first; e != nil {
		s.first = nil
		return *e
	}
	for {
		if e := s.block(); e.name != "" {
			return e
		}
	}
}

func (s *follower) value() any {
	s.t.Helper()
	e := s.next()
	var m map[string]any
	if err := json.Unmarshal([]byte(e.data), &m); e.name != "message" || err != nil {
		s.t.Fatalf("%v: %v", e, err)
	}
	return m["value"]
}

func TestAStreamResumesWhereItsClientWas(t *testing.T) {
	n := newNode(t)
	n.topic("t", "")
	for i := range 5 {
		n.want(http.StatusCreated, "POST", "/topics/t", fmt.Sprint(i))
	}
	s := n.stream(t, "GET", "/topics/t/events?from=earliest", "")
	for i := range 3 {
		if v := s.value(); v != float64(i) {
			t.Fatalf("value %v, want %d", v, i)
		}
	}
	id := s.id
	s.res.Body.Close()

	// The last event seen wins over what the address says, the header over the
	// parameter.
	for _, c := range [][]string{
		{"/topics/t/events?from=latest", "Last-Event-ID: " + id},
		{"/topics/t/events?from=latest&last_event_id=" + id},
		{"/topics/t/events?last_event_id=nonsense", "Last-Event-ID: " + id},
		{"/topics/t/events?cursor=nonsense&after=0:0", "Last-Event-ID: " + id},
		{"/topics/t/events?cursor=" + id},
	} {
		s := n.stream(t, "GET", c[0], "", c[1:]...)
		if v := s.value(); v != 3.0 {
			t.Errorf("%v: value %v, want 3", c, v)
		}
	}
	late := n.stream(t, "GET", "/topics/t/events", "")
	n.want(http.StatusCreated, "POST", "/topics/t", "5")
	if v := late.value(); v != 5.0 {
		t.Errorf("from latest: value %v", v)
	}
	lost := n.stream(t, "GET", "/topics/t/events?cursor=nonsense", "")
	if e := lost.next(); e.name != "gap" || !strings.Contains(e.data, `"reason":"unknown"`) {
		t.Errorf("%v", e)
	}
	n.want(http.StatusNotFound, "GET", "/topics/t/events?partition=7", "")
}

func TestASubscriptionIsAnAddress(t *testing.T) {
	n := newNode(t)
	n.topic("t", `"partitions":2`)
	n.want(http.StatusCreated, "POST", "/topics/t?key=a", "0")
	r := n.want(http.StatusCreated, "POST", "/topics/subscribe", `{"topic":"t","key":"a"}`)
	sub := r.json(t)
	events := sub["events"].(string)
	if events != "/subscriptions/"+sub["subscription"].(string)+"/events" || r.header.Get("Location") != events ||
		sub["websocket"] != "/ws?subscription="+sub["subscription"].(string) || len(sub["partitions"].([]any)) != 1 {
		t.Fatalf("%s", r.body)
	}
	// What comes between subscribing and reading is not lost.
	n.want(http.StatusCreated, "POST", "/topics/t?key=b", "1")
	n.want(http.StatusCreated, "POST", "/topics/t?key=a", "2")
	s := n.stream(t, "GET", events, "")
	if v := s.value(); v != 2.0 {
		t.Errorf("value %v", v)
	}
	n.want(http.StatusCreated, "POST", "/topics/t?key=a", "3")
	again := n.stream(t, "GET", events, "", "Last-Event-ID: "+s.id)
	if v := again.value(); v != 3.0 {
		t.Errorf("resumed: value %v", v)
	}
	direct := n.stream(t, "POST", "/topics/subscribe", `{"topic":"t","key":"a","from":"earliest"}`, "Accept: application/json;q=0.1, text/event-stream")
	if v := direct.value(); v != 0.0 {
		t.Errorf("direct: value %v", v)
	}
	n.want(http.StatusCreated, "POST", "/topics/subscribe", `{"topic":"t"}`, "Accept: text/event-stream;q=0, */*")
}

// TestAStreamTakesItsConnection holds that whatever a request passes on its way
// in lets go of the connection: else each stream would cost many times as much,
// and nobody would notice.
func TestAStreamTakesItsConnection(t *testing.T) {
	n := newNode(t)
	n.topic("t", "")
	sub := n.want(http.StatusCreated, "POST", "/topics/subscribe", `{"topic":"t"}`).json(t)
	for i, open := range []func() *follower{
		func() *follower { return n.stream(t, "GET", "/topics/t/events", "") },
		func() *follower { return n.stream(t, "GET", sub["events"].(string), "") },
		func() *follower {
			return n.stream(t, "POST", "/topics/subscribe", `{"topic":"t"}`, "Accept: text/event-stream")
		},
	} {
		s := open()
		if !s.res.Close || len(s.res.TransferEncoding) != 1 || s.res.TransferEncoding[0] != "chunked" {
			t.Errorf("close %v, %v", s.res.Close, s.res.TransferEncoding)
		}
		n.want(http.StatusCreated, "POST", "/topics/t", fmt.Sprint(i))
		for s.value() != float64(i) {
		}
		if got := n.taken(); got != i+1 {
			t.Errorf("%d connections are taken, %d streams are open", got, i+1)
		}
	}
	page := n.want(http.StatusOK, "GET", "/metrics", "")
	if want := `gateway_http_requests_total{method="GET",route="/topics/{topic}/events",status="200"} 1`; !strings.Contains(string(page.body), want) {
		t.Errorf("the page of metrics lacks %s", want)
	}
}

package httpapi

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"tidewire/gateway/deliver"
	"tidewire/internal/fault"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// last is the newest record of partition 0.
func (n *node) last(topic string) (out record.Record) {
	n.memory.entries(topic, func(e *record.Entry) {
		out = e.Record
		out.Headers = append([]record.HeaderField(nil), e.Headers...)
	})
	return out
}

func TestARecordIsKeptAsItWasSent(t *testing.T) {
	n := newNode(t)
	n.topic("t", "")
	for i, c := range []struct {
		body    string
		headers []string
		value   string
		typ     string
	}{
		{`{ "a": 1 }`, []string{"Content-Type: application/json"}, `{ "a": 1 }`, "application/json"},
		{`{"a":1}`, []string{"Content-Type: application/geo+json; v=1"}, `{"a":1}`, "application/geo+json; v=1"},
		{`{"a":1}`, nil, `{"a":1}`, "application/json"},
		{`a=1`, []string{"Content-Type: application/x-www-form-urlencoded"}, `a=1`, "text/plain"},
		{`[1]`, []string{"Content-Type: application/x-www-form-urlencoded"}, `[1]`, "application/json"},
		{"\xff\x00", nil, "\xff\x00", "application/octet-stream"},
		{"é", []string{"Content-Type: text/plain; charset=utf-8"}, "é", "text/plain; charset=utf-8"},
		{"{", []string{"Content-Type: application/octet-stream"}, "{", "application/octet-stream"},
		{"", nil, "", "text/plain"},
	} {
		r := n.want(http.StatusCreated, "POST", "/topics/t", c.body, c.headers...)
		a := r.json(t)
		if a["topic"] != "t" || a["partition"] != 0.0 || a["offset"] != float64(i) || a["duplicate"] != false {
			t.Errorf("%q: %s", c.body, r.body)
		}
		if _, err := time.Parse(time.RFC3339, a["timestamp"].(string)); err != nil {
			t.Error(err)
		}
		if got := n.last("t"); string(got.Value) != c.value || got.ContentType != c.typ {
			t.Errorf("%q as %v: kept %q as %q, want %q", c.body, c.headers, got.Value, got.ContentType, c.typ)
		}
	}
}

func TestParametersMayBeHeaders(t *testing.T) {
	n := newNode(t)
	n.topic("t", `"partitions":2`)
	n.want(http.StatusCreated, "POST", "/topics/t", "1", "Tidewire-Key: a", "Tidewire-Partition: 0", "Tidewire-Acks: leader", "Tidewire-Timeout: 2s",
		"Tidewire-H-Trace-Id: 7", "Tidewire-H-b: x y")
	got := n.last("t")
	if string(got.Key) != "a" || fmt.Sprint(got.Headers) != "[{b x y} {trace-id 7}]" {
		t.Errorf("key %q, headers %v", got.Key, got.Headers)
	}
	n.want(http.StatusCreated, "POST", "/topics/t?key=a", "1", "Tidewire-Key: a")
	r := n.want(http.StatusAccepted, "POST", "/topics/t?acks=none&partition=1", "1")
	if string(r.body) != `{"topic":"t","partition":1}`+"\n" {
		t.Errorf("acks=none: %s", r.body)
	}
	n.want(http.StatusCreated, "POST", "/topics/t?key=a", "", "Tidewire-Tombstone: true")
	if got := n.last("t"); !got.Tombstone || string(got.Key) != "a" {
		t.Errorf("tombstone: %+v", got)
	}
	n.want(http.StatusCreated, "POST", "/topics/t", "1", "Tidewire-Tombstone: false")
}

func TestARepeatIsADuplicate(t *testing.T) {
	n := newNode(t)
	n.topic("t", `"partitions":2`)
	sequence := func(i int) []string {
		return []string{"Tidewire-Producer: 0193b0a6-7c1e-7d0c-8f2a-3a1b2c3d4e5f", fmt.Sprintf("Tidewire-Sequence: %d", i)}
	}
	first := n.want(http.StatusCreated, "POST", "/topics/t?partition=0", "1", sequence(0)...).json(t)
	again := n.want(http.StatusOK, "POST", "/topics/t?partition=0", "1", sequence(0)...).json(t)
	if again["duplicate"] != true || again["offset"] != first["offset"] || again["timestamp"] != first["timestamp"] {
		t.Errorf("first %v, again %v", first, again)
	}
	gap := n.want(http.StatusConflict, "POST", "/topics/t?partition=0", "1", sequence(5)...).json(t)
	if gap["code"] != "out-of-order-sequence" || gap["expected"] != 1.0 {
		t.Errorf("gap: %v", gap)
	}

	first = n.want(http.StatusCreated, "POST", "/topics/t", `{"a":1}`, "Idempotency-Key: order 17").json(t)
	again = n.want(http.StatusOK, "POST", "/topics/t", `{"a":1}`, "Idempotency-Key: order 17").json(t)
	if again["duplicate"] != true || again["offset"] != first["offset"] || again["partition"] != first["partition"] {
		t.Errorf("first %v, again %v", first, again)
	}
	other := n.want(http.StatusUnprocessableEntity, "POST", "/topics/t", `{"a":2}`, "Idempotency-Key: order 17").json(t)
	if other["code"] != "idempotency-key-reused" {
		t.Errorf("other body: %v", other)
	}
}

// A sequenced record that is refused for what it is uses its number up; one
// that is refused for the moment, or for its caller's mistake, does not.
func TestARefusalUsesTheSequenceUp(t *testing.T) {
	n := newNode(t)
	n.topic("t", `"max_message_bytes":1024`)
	sequence := func(i int, more ...string) []string {
		return append(more, "Tidewire-Producer: 0193b0a6-7c1e-7d0c-8f2a-3a1b2c3d4e5f", fmt.Sprintf("Tidewire-Sequence: %d", i))
	}
	n.want(http.StatusBadRequest, "POST", "/topics/t?partition=0&acks=most", "1", sequence(0)...)
	n.want(http.StatusCreated, "POST", "/topics/t?partition=0", "1", sequence(0)...)
	refused := []got{
		n.want(http.StatusBadRequest, "POST", "/topics/t?partition=0", "{", sequence(1, "Content-Type: application/json")...),
		n.want(http.StatusRequestEntityTooLarge, "POST", "/topics/t?partition=0", strings.Repeat("x", 1025), sequence(2)...),
		n.want(http.StatusBadRequest, "POST", "/topics/t?partition=0&key=", "1", sequence(3)...),
		n.want(http.StatusBadRequest, "POST", "/topics/t?partition=0", "1", sequence(4, "Tidewire-H-Tidewire-X: 1")...),
	}
	n.memory.refuse = func(rpc.Append) error { return fault.New(fault.DiskFull, "no room") }
	n.want(http.StatusServiceUnavailable, "POST", "/topics/t?partition=0", "5", sequence(5)...)
	// What cannot be voided is not refused for what it is: its producer would
	// go on with a number that was never used up.
	n.want(http.StatusServiceUnavailable, "POST", "/topics/t?partition=0", "{", sequence(5, "Content-Type: application/json")...)
	n.memory.refuse = nil
	n.want(http.StatusCreated, "POST", "/topics/t?partition=0", "5", sequence(5)...)
	if got := n.memory.values("t", 0); strings.Join(got, " ") != "1 5" {
		t.Errorf("kept %q", got)
	}
	if len(refused) != 4 {
		t.Fatal("not all were tried")
	}
	// Ahead of the sequence a bad record is a gap like any other.
	r := n.want(http.StatusConflict, "POST", "/topics/t?partition=0", "{", sequence(9, "Content-Type: application/json")...)
	if r.json(t)["expected"] != 6.0 {
		t.Errorf("%s", r.body)
	}
}

func TestTheMomentIsNamed(t *testing.T) {
	n := newNode(t)
	for kind, status := range map[fault.Kind]int{
		fault.NotEnoughReplicas: 503, fault.DiskFull: 503, fault.Throttled: 429, fault.UnknownOutcome: 504,
	} {
		n.memory.refuse = func(rpc.Append) error { return fault.New(kind, "not now") }
		n.topic(kind.Code(), "") // one each: what is unknown holds up what comes after it
		r := n.want(status, "POST", "/topics/"+kind.Code(), "1")
		if r.json(t)["code"] != kind.Code() || (status != 504) != (r.header.Get("Retry-After") == "1") {
			t.Errorf("%s, Retry-After %q", r.body, r.header.Get("Retry-After"))
		}
	}
}

// old answers as a leader does that knows a duplicate but no longer its place.
func TestADuplicateOlderThanTheWindowHasNoOffset(t *testing.T) {
	n := newNode(t)
	n.topic("t", "")
	ref := n.memory.Snapshot().Topics["t"].Ref(0)
	seq := []string{"Tidewire-Producer: 0193b0a6-7c1e-7d0c-8f2a-3a1b2c3d4e5f", "Tidewire-Sequence: 0"}
	n.want(http.StatusCreated, "POST", "/topics/t?partition=0", "1", seq...)
	for _, w := range n.memory.parts[ref].producers {
		clear(w.at)
	}
	r := n.want(http.StatusOK, "POST", "/topics/t?partition=0", "1", seq...)
	if string(r.body) != `{"topic":"t","partition":0,"duplicate":true}`+"\n" {
		t.Errorf("%s", r.body)
	}
}

// A body that ends too early is never taken for a shorter one.
func TestACutBodyIsNotPublished(t *testing.T) {
	n := newNode(t)
	n.topic("t", "")
	for _, body := range []string{
		"Content-Length: 10\r\n\r\n12345",
		"Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n",
		"Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\nzz\r\n",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(n.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST /topics/t HTTP/1.1\r\nHost: x\r\n%s", body)
		_ = conn.(*net.TCPConn).CloseWrite()
		answer, _ := io.ReadAll(conn)
		conn.Close()
		if strings.Contains(string(answer), "201") || !strings.Contains(string(answer), `"code":"invalid"`) {
			t.Errorf("%q: %s", body, answer)
		}
	}
	if got := n.memory.values("t", 0); len(got) > 0 {
		t.Errorf("kept %q", got)
	}
}

func TestControlHoldsItsPromises(t *testing.T) {
	n := newNode(t)
	r := n.want(http.StatusCreated, "POST", "/topics", `{"name":"t","partitions":3,"retention":{"age":"36h","bytes":100000},"compaction":false,"durability":"replicated","idempotency_window":"90s"}`)
	if r.header.Get("Location") != "/topics/t/metadata" {
		t.Errorf("Location %q", r.header.Get("Location"))
	}
	again := n.want(http.StatusOK, "POST", "/topics/", `{"name":"t"}`)
	meta := n.want(http.StatusOK, "GET", "/topics/t/metadata", "")
	if string(again.body) != string(meta.body) {
		t.Errorf("%s is not %s", again.body, meta.body)
	}
	d := meta.json(t)
	if fmt.Sprint(d["retention"]) != "map[age:36h bytes:100000]" || d["idempotency_window"] != "1m30s" || d["durability"] != "replicated" {
		t.Errorf("%s", meta.body)
	}
	n.want(http.StatusCreated, "POST", "/topics/t?partition=2", "1")
	layout := n.want(http.StatusOK, "GET", "/topics/t/metadata", "").json(t)["layout"].(map[string]any)
	parts := layout["partitions"].([]any)
	last := parts[2].(map[string]any)
	if len(parts) != 3 || last["hi"] != 4294967296.0 || last["hw"] != 1.0 || last["earliest"] != 0.0 || last["leader"] != "node-a" || last["state"] != "open" {
		t.Errorf("%v", layout)
	}
	d = n.want(http.StatusOK, "PATCH", "/topics/t", `{"retention":{"bytes":0},"max_message_bytes":2048}`).json(t)
	if fmt.Sprint(d["retention"]) != "map[age:36h bytes:0]" || d["max_message_bytes"] != 2048.0 {
		t.Errorf("%v", d)
	}
	n.topic("a", "")
	list := n.want(http.StatusOK, "GET", "/topics/", "").json(t)["topics"].([]any)
	if len(list) != 2 || list[0].(map[string]any)["name"] != "a" {
		t.Errorf("%v", list)
	}
	n.want(http.StatusNoContent, "DELETE", "/topics/t", "")
	n.want(http.StatusNotFound, "GET", "/topics/t/metadata", "")

	node := n.want(http.StatusOK, "GET", "/nodes/node-a", "").json(t)
	byID := n.want(http.StatusOK, "GET", "/nodes/"+node["id"].(string), "").json(t)
	if node["connections"] != 3.0 || node["uptime"] != "1h" || node["coordinator_leader"] != true || byID["name"] != "node-a" ||
		fmt.Sprint(node["partitions"]) != "map[followed:0 led:1]" {
		t.Errorf("%v", node)
	}
}

func TestPollsGoOnByCursor(t *testing.T) {
	n := newNode(t)
	n.topic("t", `"partitions":4`)
	empty := n.want(http.StatusOK, "GET", "/topics/t", "").json(t)
	if empty["end"] != true || empty["cursor"] == "" || len(empty["messages"].([]any)) != 0 {
		t.Fatalf("%v", empty)
	}
	for i := range 50 {
		n.want(http.StatusCreated, "POST", fmt.Sprintf("/topics/t?key=k%d", i%10), fmt.Sprint(i))
	}
	cursor, seen, last := empty["cursor"].(string), 0, map[any]float64{}
	for end := false; !end; {
		a := n.want(http.StatusOK, "GET", "/topics/t?limit=7&cursor="+cursor, "").json(t)
		for _, m := range a["messages"].([]any) {
			m := m.(map[string]any)
			if before, ok := last[m["key"]]; ok && m["value"].(float64) <= before {
				t.Errorf("key %v: %v after %v", m["key"], m["value"], before)
			}
			last[m["key"]] = m["value"].(float64)
			seen++
		}
		cursor, end = a["cursor"].(string), a["end"].(bool)
	}
	if seen != 50 {
		t.Errorf("%d messages, want 50", seen)
	}
	one := n.want(http.StatusOK, "GET", "/topics/t?key=k3", "").json(t)
	if len(one["messages"].([]any)) != 5 {
		t.Errorf("%v", one)
	}
	n.want(http.StatusBadRequest, "GET", "/topics/t?key=k4&cursor="+one["cursor"].(string), "")
	first := n.want(http.StatusOK, "GET", "/topics/t?partition=0&offset=1&limit=1", "").json(t)["messages"].([]any)[0].(map[string]any)
	if first["partition"] != 0.0 || first["offset"] != 1.0 {
		t.Errorf("%v", first)
	}
	n.memory.expire(n.memory.Snapshot().Topics["t"].Ref(0), 2)
	gone := n.want(http.StatusGone, "GET", "/topics/t?partition=0&offset=1", "").json(t)
	if gone["code"] != "offset-expired" || gone["earliest"] != 2.0 {
		t.Errorf("%v", gone)
	}
	lost := n.want(http.StatusGone, "GET", "/topics/t?cursor="+empty["cursor"].(string), "").json(t)
	if lost["code"] != "cursor-expired" || lost["cursor"] == "" {
		t.Errorf("%v", lost)
	}
	n.want(http.StatusOK, "GET", "/topics/t?cursor="+lost["cursor"].(string), "")
	none := n.want(http.StatusOK, "GET", "/topics/t?partition=1&offset=latest", "").json(t)
	if len(none["messages"].([]any)) != 0 {
		t.Errorf("%v", none)
	}
}

func TestALongPollHearsOfTheNextRecord(t *testing.T) {
	n := newNode(t)
	n.topic("t", "")
	waiting := make(chan got)
	go func() { waiting <- n.call("GET", "/topics/t?from=latest&wait=30s", "") }()
	// The poll may begin before or after the record: what it says it starts at
	// is what counts, so publish until it has one.
	for i := 0; ; i++ {
		n.want(http.StatusCreated, "POST", "/topics/t", fmt.Sprint(i))
		select {
		case r := <-waiting:
			if messages := r.json(t)["messages"].([]any); len(messages) == 0 {
				t.Errorf("%s", r.body)
			}
			return
		default:
		}
	}
}

// waited tells when its poll has begun.
type waited struct {
	Reader
	began chan struct{}
}

func (w waited) Poll(ctx context.Context, q deliver.PollRequest) (deliver.PollResult, error) {
	close(w.began)
	return w.Reader.Poll(ctx, q)
}

func TestADrainEndsLongPolls(t *testing.T) {
	n := newNode(t)
	n.topic("t", "")
	began := make(chan struct{})
	n.api.cfg.Reader = waited{n.api.cfg.Reader, began}
	answered := make(chan got)
	go func() { answered <- n.call("GET", "/topics/t?from=latest&wait=60s", "") }()
	<-began
	n.api.Drain()
	if r := <-answered; r.status != http.StatusOK && r.json(t)["code"] != "draining" {
		t.Errorf("status %d: %s", r.status, r.body)
	}
}

// What was kept is found again though its topic takes less by now; what is new
// is refused.
func TestARepeatIsFoundAfterTheBoundWasLowered(t *testing.T) {
	const producer = "Tidewire-Producer: 0193b0a6-7c1e-7d0c-8f2a-3a1b2c3d4e5f"
	long := `"` + strings.Repeat("x", 3000) + `"`
	for name, c := range map[string]struct {
		body    string
		headers []string
		next    []string
		kept    int
	}{
		"Idempotency-Key": {long, []string{"Idempotency-Key: a"}, []string{"Idempotency-Key: b"}, 201},
		"sequence":        {long, []string{producer, "Tidewire-Sequence: 0"}, []string{producer, "Tidewire-Sequence: 1"}, 201},
		"lines":           {`{"value":` + long + "}\n", []string{ndjson, producer, "Tidewire-Sequence: 0"}, []string{ndjson, producer, "Tidewire-Sequence: 1"}, 201},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.topic("t", "")
			first := n.want(c.kept, "POST", "/topics/t?partition=0", c.body, c.headers...).lines(t)[0]
			n.want(http.StatusOK, "PATCH", "/topics/t", `{"max_message_bytes":1024}`)
			again := n.call("POST", "/topics/t?partition=0", c.body, c.headers...).lines(t)[0]
			if again["duplicate"] != true || again["offset"] != first["offset"] {
				t.Errorf("%v, again %v", first, again)
			}
			if next := n.call("POST", "/topics/t?partition=0", c.body, c.next...).lines(t)[0]; next["code"] != "message-too-large" {
				t.Errorf("a new one: %v", next)
			}
		})
	}
}

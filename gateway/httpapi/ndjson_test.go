package httpapi

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"tidewire/gateway/publish"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

const ndjson = "Content-Type: application/x-ndjson"

// body makes n lines, each with its number as the value.
func body(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"key":"k%d","value":%d}`+"\n", i%17, i)
	}
	return b.String()
}

func TestEachLineIsAnsweredInItsPlace(t *testing.T) {
	n := newNode(t)
	n.topic("t", `"partitions":3,"max_message_bytes":1024`)
	tooLong := `{"value":"` + strings.Repeat("x", lineBytes(1024)) + `"}`
	lines := []struct{ line, code string }{
		{`{"value":1}`, ""},
		{`{"value":`, "invalid"},
		{``, "invalid"},
		{`{"key":"a","value":"text","content_type":"text/plain","headers":{"X":"1"}}`, ""},
		{`{"key":"a","vlaue":1}`, "unknown-field"},
		{`{"value":1,"partition":9}`, "partition-not-found"},
		{`{"key":"a","value":1,"partition":2}`, "wrong-partition"},
		{`{"value":"` + strings.Repeat("x", 1024) + `"}`, "message-too-large"},
		{tooLong, "message-too-large"},
		{`{"value_base64":"AAE="}`, ""},
		{`{"key":"a","tombstone":true}`, ""},
		{`{"value":1,"headers":{"Tidewire-X":"1"}}`, "reserved-name"},
		{"{\"value\":\"\xff\"}", "invalid"},
		{`{"value":null}` + "\r", ""},
		{`{"value":2,"partition":1}`, ""},
	}
	var b strings.Builder
	for i, l := range lines {
		b.WriteString(l.line)
		if i < len(lines)-1 { // the last needs no newline
			b.WriteByte('\n')
		}
	}
	r := n.want(http.StatusMultiStatus, "POST", "/topics/t", b.String(), ndjson)
	answers := r.lines(t)
	if len(answers) != len(lines) || r.header.Get("Content-Type") != "application/x-ndjson" {
		t.Fatalf("%d answers to %d lines: %s", len(answers), len(lines), r.body)
	}
	for i, a := range answers {
		code, _ := a["code"].(string)
		if _, ok := a["offset"]; code != lines[i].code || ok != (code == "") {
			t.Errorf("line %d %.40q: %v, want %q", i, lines[i].line, a, lines[i].code)
		}
	}
}

func TestLinesAreKeptInTheirOrder(t *testing.T) {
	n := newNode(t)
	n.topic("t", `"partitions":4`)
	var pick sync.Mutex
	var late []func()
	n.memory.hold = func(answer func()) { // answers come from elsewhere, in any order
		pick.Lock()
		late = append(late, answer)
		rand.Shuffle(len(late), func(i, j int) { late[i], late[j] = late[j], late[i] })
		ready := late
		late = nil
		if len(ready) < 3 && rand.IntN(2) == 0 {
			late = ready
			ready = nil
		}
		pick.Unlock()
		go func() {
			for _, answer := range ready {
				answer()
			}
			pick.Lock()
			rest := late
			late = nil
			pick.Unlock()
			for _, answer := range rest {
				answer()
			}
		}()
	}
	const lines = 3000
	r := n.want(http.StatusCreated, "POST", "/topics/t", body(lines), ndjson)
	where := map[string]int{}
	for i := range 4 {
		next := map[int]int{}
		for offset, v := range n.memory.values("t", ident.Index(i)) {
			var value int
			if err := json.Unmarshal([]byte(v), &value); err != nil {
				t.Fatal(err)
			}
			key := value % 17
			if last, ok := next[key]; ok && value <= last {
				t.Errorf("key %d: %d after %d", key, value, last)
			}
			next[key] = value
			where[fmt.Sprintf("%d/%d", i, offset)] = value
		}
	}
	answers := r.lines(t)
	if len(answers) != lines || len(where) != lines {
		t.Fatalf("%d answers, %d records", len(answers), len(where))
	}
	for i, a := range answers {
		if got := where[fmt.Sprintf("%v/%v", a["partition"], a["offset"])]; got != i {
			t.Fatalf("line %d was answered with the place of %d", i, got)
		}
	}
}

func TestPastTenThousandLinesTheStatusIs207(t *testing.T) {
	n := newNode(t)
	n.topic("t", "")
	for lines, status := range map[int]int{1: 201, patientLines: 201, patientLines + 1: 207} {
		r := n.want(status, "POST", "/topics/t", body(lines), ndjson)
		if got := bytes.Count(r.body, []byte("\n")); got != lines || bytes.Contains(r.body, []byte(`"code"`)) {
			t.Errorf("%d lines: %d answers", lines, got)
		}
	}
	r := n.want(http.StatusCreated, "POST", "/topics/t", "", ndjson)
	if len(r.body) > 0 {
		t.Errorf("no lines: %s", r.body)
	}
	r = n.want(http.StatusAccepted, "POST", "/topics/t?acks=none", body(2), ndjson)
	if string(r.body) != strings.Repeat(`{"topic":"t","partition":0}`+"\n", 2) {
		t.Errorf("acks=none: %s", r.body)
	}
}

func TestASequenceCountsUpByLine(t *testing.T) {
	n := newNode(t)
	n.topic("t", `"max_message_bytes":1024`)
	sequence := func(i int) []string {
		return []string{ndjson, "Tidewire-Producer: 0193b0a6-7c1e-7d0c-8f2a-3a1b2c3d4e5f", fmt.Sprintf("Tidewire-Sequence: %d", i)}
	}
	lines := "{\"value\":0}\nnonsense\n{\"value\":\"" + strings.Repeat("x", 1<<18) + "\"}\n{\"value\":3,\"partition\":1}\n{\"value\":4}\n"
	first := n.want(http.StatusMultiStatus, "POST", "/topics/t?partition=0", lines, sequence(0)...).lines(t)
	again := n.want(http.StatusMultiStatus, "POST", "/topics/t?partition=0", lines, sequence(0)...).lines(t)
	for i, code := range []any{nil, "invalid", "message-too-large", "invalid", nil} {
		repeated := code
		if code == "message-too-large" {
			repeated = "invalid" // the leader's: its number is used up
		}
		if first[i]["code"] != code || again[i]["code"] != repeated {
			t.Errorf("line %d: %v, again %v", i, first[i], again[i])
		}
		if code == nil && (again[i]["duplicate"] != true || again[i]["offset"] != first[i]["offset"]) {
			t.Errorf("line %d: %v, again %v", i, first[i], again[i])
		}
	}
	n.want(http.StatusCreated, "POST", "/topics/t?partition=0", "{\"value\":5}\n{\"value\":6}", sequence(5)...)
	if got := strings.Join(n.memory.values("t", 0), " "); got != "0 4 5 6" {
		t.Errorf("kept %s", got)
	}
	gap := n.want(http.StatusMultiStatus, "POST", "/topics/t?partition=0", "{\"value\":9}", sequence(9)...).lines(t)
	if gap[0]["expected"] != 7.0 {
		t.Errorf("%v", gap)
	}
}

// A client may read while it sends, for ever: over both protocols the answers
// come while the body still does.
func TestAnswersFlowWhileTheBodyDoes(t *testing.T) {
	n := newNode(t)
	n.topic("t", "")
	for name, set := range map[string]func(*http.Protocols){
		"HTTP/1": func(p *http.Protocols) { p.SetHTTP1(true) },
		"HTTP/2": func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) },
	} {
		t.Run(name, func(t *testing.T) {
			var protocols http.Protocols
			set(&protocols)
			transport := &http.Transport{Protocols: &protocols}
			defer transport.CloseIdleConnections()
			in, out := io.Pipe()
			req, _ := http.NewRequest("POST", n.url+"/topics/t", in)
			req.Header.Set("Content-Type", "application/x-ndjson")
			var sending sync.WaitGroup
			defer sending.Wait()
			sending.Go(func() { _, _ = io.WriteString(out, body(patientLines+1)) })
			res, err := transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if res.StatusCode != http.StatusMultiStatus {
				t.Fatalf("status %d", res.StatusCode)
			}
			answers := bufio.NewScanner(res.Body)
			for i := range patientLines + 1 {
				if !answers.Scan() {
					t.Fatalf("answer %d: %v", i, answers.Err())
				}
			}
			// From here on each line has its answer before the next is sent.
			for i := range 20 {
				if _, err := io.WriteString(out, body(1)); err != nil {
					t.Fatal(err)
				}
				if !answers.Scan() || !strings.Contains(answers.Text(), `"offset"`) {
					t.Fatalf("line %d: %q, %v", i, answers.Text(), answers.Err())
				}
			}
			out.Close()
			if answers.Scan() {
				t.Errorf("one answer too many: %s", answers.Text())
			}
		})
	}
}

// A client that sends all of a large body before it reads anything gets all
// answers, as long as they fit into what stands between.
func TestASenderThatReadsLate(t *testing.T) {
	n := newNode(t)
	n.topic("t", "")
	const lines = patientLines + 5000
	r := n.want(http.StatusMultiStatus, "POST", "/topics/t", body(lines), ndjson)
	if got := bytes.Count(r.body, []byte("\n")); got != lines {
		t.Errorf("%d answers", got)
	}
}

// stuck is a client that takes nothing until it is released.
type stuck struct {
	header  http.Header
	release chan struct{}
	fail    atomic.Bool
	lines   atomic.Int64
}

func (s *stuck) Header() http.Header { return s.header }
func (s *stuck) WriteHeader(int)     {}
func (s *stuck) Write(p []byte) (int, error) {
	<-s.release
	if s.fail.Load() {
		return 0, errors.New("the client is gone")
	}
	s.lines.Add(int64(bytes.Count(p, []byte("\n"))))
	return len(p), nil
}

// endless is a body of good lines, counted as they are read.
type endless struct {
	sent, most int
	rest       []byte
	read       atomic.Int64
}

func (e *endless) Read(p []byte) (int, error) {
	if len(e.rest) == 0 {
		if e.sent == e.most {
			return 0, io.EOF
		}
		e.sent++
		e.rest = []byte(`{"value":1}` + "\n")
	}
	c := copy(p, e.rest)
	if e.rest = e.rest[c:]; len(e.rest) == 0 {
		e.read.Add(1)
	}
	return c, nil
}

// keeps is a Publisher that keeps everything at once.
type keeps struct{}

func (keeps) Publish(req publish.Request, done func(publish.Result)) {
	done(publish.Result{Topic: req.Topic, Offset: 1, Timestamp: 1})
}

// A client that does not read is not read from either: memory is bounded by
// the answers it may leave lying. When it reads, all goes on; when it is gone,
// the call ends.
func TestAClientThatDoesNotReadIsHeldBack(t *testing.T) {
	for _, gone := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m := newMemory()
			api := New(Config{Topology: m, Control: m, Nodes: m.nodes(), Publisher: keeps{}})
			if r := serve(api, "POST", "/topics/", `{"name":"t"}`); r.Code != http.StatusCreated {
				t.Fatal(r.Body)
			}
			w := &stuck{header: http.Header{}, release: make(chan struct{})}
			w.fail.Store(gone)
			const lines = maxPending + 20_000
			in := &endless{most: lines}
			req := httptest.NewRequest("POST", "/topics/t", in)
			req.Header.Set("Content-Type", "application/x-ndjson")
			ended := make(chan any, 1)
			go func() {
				defer func() { ended <- recover() }()
				api.ServeHTTP(w, req)
			}()
			synctest.Wait() // until everybody waits for the client
			if got := in.read.Load(); got < maxPending || got > maxPending+readAhead {
				t.Errorf("%d lines were read ahead", got)
			}
			close(w.release)
			p := <-ended
			if gone {
				if p != http.ErrAbortHandler || in.read.Load() == lines {
					t.Errorf("ended with %v after %d lines", p, in.read.Load())
				}
				return
			}
			if p != nil || w.lines.Load() != lines {
				t.Errorf("%d answers, %v", w.lines.Load(), p)
			}
		})
	}
}

// serve calls without a server in between.
func serve(h http.Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	for _, x := range headers {
		name, value, _ := strings.Cut(x, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestADrainEndsABodyOfLines(t *testing.T) {
	n := newNode(t)
	n.topic("t", "")
	in, out := io.Pipe()
	req, _ := http.NewRequest("POST", n.url+"/topics/t", in)
	req.Header.Set("Content-Type", "application/x-ndjson")
	var sending sync.WaitGroup
	sending.Go(func() {
		_, _ = io.WriteString(out, body(2))
		n.api.Drain()
	})
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	sending.Wait()
	out.Close()
	answers := got{body: b}.lines(t)
	if last := answers[len(answers)-1]; res.StatusCode != http.StatusMultiStatus || last["code"] != "draining" {
		t.Errorf("status %d: %s", res.StatusCode, b)
	}
	if kept := len(n.memory.values("t", 0)); kept != len(answers)-1 {
		t.Errorf("%d kept, answers %s", kept, b)
	}
}

func TestAFaultOfTheMomentIsALineToo(t *testing.T) {
	n := newNode(t)
	n.topic("t", "")
	var calls int
	n.memory.refuse = func(rpc.Append) error {
		if calls++; calls%2 == 0 {
			return fault.New(fault.DiskFull, "no room")
		}
		return nil
	}
	r := n.call("POST", "/topics/t", body(500), ndjson)
	answers := r.lines(t)
	kept := 0
	for _, a := range answers {
		if a["code"] == nil {
			kept++
		} else if a["code"] != "disk-full" {
			t.Errorf("%v", a)
		}
	}
	if len(answers) != 500 || kept != len(n.memory.values("t", 0)) || (r.status == 201) != (kept == 500) {
		t.Errorf("status %d, %d answers, %d kept, %d in the log", r.status, len(answers), kept, len(n.memory.values("t", 0)))
	}
}

// JSON may write one byte in six; a record within its bound is kept however
// its line is written.
func TestALineMayBeAllEscapes(t *testing.T) {
	n := newNode(t)
	n.topic("t", `"max_message_bytes":1048576`)
	line := func(chars int) string {
		return `{"content_type":"text/plain","value":"` + strings.Repeat(`\u0041`, chars) + "\"}\n"
	}
	r := n.want(http.StatusCreated, "POST", "/topics/t", line(1_000_000), ndjson)
	if a := r.lines(t); len(a) != 1 || a[0]["code"] != nil {
		t.Errorf("%v", a)
	}
	r = n.want(http.StatusMultiStatus, "POST", "/topics/t", line(1_048_577)+line(1_100_000), ndjson)
	for i, a := range r.lines(t) {
		if a["code"] != "message-too-large" {
			t.Errorf("line %d: %v", i, a)
		}
	}
}

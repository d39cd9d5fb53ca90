package web

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// patience is how long the page may take over anything.
const patience = time.Minute

// fakeNode answers what the page asks of a node, and lets the test steer it.
type fakeNode struct {
	*httptest.Server
	opened     chan *stream // every stream of events that the page opens
	published  chan publication
	leaderless atomic.Bool // one partition has no leader that answers

	mu      sync.Mutex
	topics  []string
	refusal string // detail of the problem that streams and publishes get; "": none
}

type stream struct {
	topic  string
	query  url.Values
	last   string // its Last-Event-ID
	events chan string
}

// send writes a raw event; an empty one ends the stream.
func (s *stream) send(format string, args ...any) { s.events <- fmt.Sprintf(format, args...) }

func (s *stream) message(id string, partition, offset int, key, value string) {
	s.send("id: %s\nevent: message\ndata: {\"topic\":%q,\"partition\":%d,\"offset\":%d,\"timestamp\":\"2026-01-31T15:04:05.123Z\",\"key\":%s,\"content_type\":\"application/json\",\"headers\":{},%s}\n\n",
		id, s.topic, partition, offset, key, value)
}

type publication struct{ topic, key, mime, body string }

func newFakeNode(t *testing.T, topics ...string) *fakeNode {
	n := &fakeNode{opened: make(chan *stream, 16), published: make(chan publication, 16), topics: topics}
	m := http.NewServeMux()
	for _, p := range Paths() {
		if p == "/" {
			p = "/{$}"
		}
		m.Handle(p, Handler())
	}
	m.HandleFunc("GET /topics/{$}", n.list)
	m.HandleFunc("POST /topics/{$}", n.create)
	m.HandleFunc("POST /topics/{topic}", n.publish)
	m.HandleFunc("GET /topics/{topic}/events", n.stream)
	m.HandleFunc("GET /topics/{topic}/metadata", n.describe)
	m.HandleFunc("GET /topics/{topic}", n.poll)
	n.Server = httptest.NewServer(m)
	t.Cleanup(func() {
		n.CloseClientConnections()
		n.Close()
	})
	return n
}

func (n *fakeNode) refuse(detail string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refusal = detail
}

func (n *fakeNode) refused(w http.ResponseWriter) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.refusal == "" {
		return false
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(http.StatusServiceUnavailable)
	_ = json.NewEncoder(w).Encode(map[string]any{"code": "draining", "detail": n.refusal})
	return true
}

func (n *fakeNode) list(w http.ResponseWriter, _ *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := []map[string]any{}
	for _, name := range n.topics {
		list = append(list, map[string]any{"name": name, "layout": map[string]any{"partitions": []map[string]any{{"id": 0, "earliest": 0, "hw": 1234}}}})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"topics": list})
}

func (n *fakeNode) create(w http.ResponseWriter, r *http.Request) {
	var topic struct{ Name string }
	_ = json.NewDecoder(r.Body).Decode(&topic)
	n.mu.Lock()
	there := slices.Contains(n.topics, topic.Name)
	if !there {
		n.topics = append(n.topics, topic.Name)
	}
	n.mu.Unlock()
	if !there {
		w.WriteHeader(http.StatusCreated)
	}
	_, _ = io.WriteString(w, "{}")
}

// describe has a partition with much, one with little and one with nothing, and while
// that is so, one of which nobody says anything.
func (n *fakeNode) describe(w http.ResponseWriter, _ *http.Request) {
	if n.leaderless.Load() {
		_, _ = io.WriteString(w, `{"layout":{"partitions":[{"id":0,"earliest":1000,"hw":2000},{"id":1,"earliest":null,"hw":null}]}}`)
		return
	}
	_, _ = io.WriteString(w, `{"layout":{"partitions":[{"id":0,"earliest":1000,"hw":2000},{"id":1,"earliest":0,"hw":20},{"id":2,"earliest":0,"hw":0},{"id":3,"earliest":5,"hw":500}]}}`)
}

// poll gives the first message of partition 1.
func (n *fakeNode) poll(w http.ResponseWriter, r *http.Request) {
	if q := r.URL.Query(); q.Get("from") != "earliest" || q.Get("limit") != "1" {
		http.Error(w, "not what was expected: "+r.URL.RawQuery, http.StatusBadRequest)
		return
	}
	_, _ = io.WriteString(w, `{"messages":[{"topic":"t","partition":1,"offset":0,"timestamp":"2026-01-31T15:04:05.123Z","key":null,"content_type":"application/json","headers":{},"value":"the first"}],"cursor":"at-1","end":false}`)
}

func (n *fakeNode) publish(w http.ResponseWriter, r *http.Request) {
	if n.refused(w) {
		return
	}
	body, _ := io.ReadAll(r.Body)
	n.published <- publication{r.PathValue("topic"), r.URL.Query().Get("key"), r.Header.Get("Content-Type"), string(body)}
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, `{"topic":"t","partition":2,"offset":17,"duplicate":false}`)
}

func (n *fakeNode) stream(w http.ResponseWriter, r *http.Request) {
	if n.refused(w) {
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, "retry: 50\n\n")
	flush := w.(http.Flusher)
	flush.Flush()
	s := &stream{topic: r.PathValue("topic"), query: r.URL.Query(), last: r.Header.Get("Last-Event-ID"), events: make(chan string, 1000)}
	n.opened <- s
	for {
		select {
		case e := <-s.events:
			if e == "" {
				return
			}
			_, _ = io.WriteString(w, e)
			flush.Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// next is the next stream that the page opens.
func (n *fakeNode) next(t *testing.T) *stream {
	t.Helper()
	select {
	case s := <-n.opened:
		return s
	case <-time.After(patience):
		t.Fatal("the page opened no stream")
		return nil
	}
}

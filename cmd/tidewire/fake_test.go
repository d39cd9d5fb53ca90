package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// fake answers as the public API says, for one topic store in memory, and gets
// into trouble on request. It stands in for a node where the behaviour under
// test is the command's own.
type fake struct {
	*httptest.Server
	mu       sync.Mutex
	topics   map[string]*fakeTopic
	groups   map[string]*fakeGroup   // by topic/group
	requests map[string]*fakeRequest // by correlation id
	joins    chan string             // topic/group of each join
	trouble  map[string][]string     // by call: what goes wrong with its next ones
	calls    []string                // method and path of every call
	bearer   string                  // Authorization of the last one
	changed  chan struct{}           // closed and replaced when a record came
	box      fakeNode
	behind   time.Duration // its clock, behind that of the commands
}

// now is the time by the fake's clock.
func (f *fake) now() time.Time { return time.Now().Add(-f.behind) }

// fakeNode is a node that a drain empties with every look at it.
type fakeNode struct {
	draining, stuck bool
	led, clients    int
}

func (n *fakeNode) describe() map[string]any {
	state := "alive"
	if n.draining {
		state = "draining"
	}
	return map[string]any{
		"id": "n1", "name": "box", "state": state, "roles": []string{"gateway", "broker"}, "version": "v1", "addresses": map[string]any{"http": "127.0.0.1:8080"}, "uptime": "3s",
		"partitions": map[string]any{"led": n.led, "followed": 1}, "coordinator_leader": false, "moves": []any{}, "connections": n.clients,
		"disk": map[string]any{"used": 1536, "free": 3 << 30},
	}
}

func (n *fakeNode) leave() {
	if n.draining && !n.stuck {
		n.led, n.clients = n.led/2, max(0, n.clients-1)
	}
}

// one is a call about the node box.
func (f *fake) one(do http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if name := r.PathValue("node"); name != "box" && name != "n1" {
			refuse(w, fault.NodeNotFound, "there is no node "+name)
			return
		}
		do(w, r)
	}
}

type fakeTopic struct {
	name     string
	settings map[string]any
	logs     [][]string                 // messages by partition
	purged   map[int]int64              // where partitions begin that do not at 0
	next     map[string]int64           // by producer and partition
	first    map[string]map[int64]int64 // offset by producer, partition and sequence
}

func newFake() *fake {
	f := &fake{topics: map[string]*fakeTopic{}, groups: map[string]*fakeGroup{}, requests: map[string]*fakeRequest{}, joins: make(chan string, 1000), trouble: map[string][]string{}, changed: make(chan struct{}), box: fakeNode{led: 2, clients: 1}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if f.takes("ready") == "no" {
			refuse(w, fault.CoordinatorUnavailable, "the coordinator has no leader yet")
		}
	})
	mux.HandleFunc("GET /nodes/{$}", func(w http.ResponseWriter, r *http.Request) {
		age := "250ms"
		if f.takes("nodes") == "deaf" {
			age = "7.204s"
		}
		answer(w, 200, map[string]any{"nodes": []any{f.box.describe(), map[string]any{
			"id": "n2", "name": "crate", "state": "dead", "roles": []string{"broker", "coordinator"}, "zone": "north", "version": "v1",
			"partitions": map[string]any{"led": 0, "followed": 7}, "coordinator_leader": true, "moves": []any{map[string]any{}, map[string]any{}}, "addresses": map[string]any{"http": ""},
		}}, "coordinator_leader": "crate", "feed_age": age})
	})
	mux.HandleFunc("GET /nodes/{node}", f.one(func(w http.ResponseWriter, r *http.Request) {
		switch f.takesLocked("node") {
		case "break":
			panic(http.ErrAbortHandler)
		case "restart":
			f.box.draining = false
		}
		answer(w, 200, f.box.describe())
		f.box.leave()
	}))
	mux.HandleFunc("POST /nodes/{node}/drain", f.one(func(w http.ResponseWriter, r *http.Request) {
		var asked struct{ Cancel bool }
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			refuse(w, fault.Invalid, err.Error())
			return
		}
		f.box.draining, f.box.stuck = !asked.Cancel, f.takesLocked("drain") == "stuck"
		answer(w, 202, f.box.describe())
	}))
	mux.HandleFunc("GET /alerts", func(w http.ResponseWriter, r *http.Request) {
		if f.takes("alerts") == "none" {
			answer(w, 200, map[string]any{"alerts": []any{}})
			return
		}
		answer(w, 200, map[string]any{"alerts": []any{
			map[string]any{"alert": "node-down", "state": "firing", "since": "2026-01-31T15:04:05Z", "node": "crate", "detail": "crate is dead", "advice": "start it again"},
			map[string]any{"alert": "replica-lag", "state": "resolved", "since": "2026-01-31T15:00:00Z", "until": "2026-01-31T15:01:00Z", "topic": "t", "partition": 3, "detail": "crate lagged", "advice": "look at its disk"},
		}})
	})
	mux.HandleFunc("POST /topics/{$}", f.create)
	mux.HandleFunc("GET /topics/{$}", f.list)
	mux.HandleFunc("GET /topics/{topic}/metadata", f.with(func(w http.ResponseWriter, r *http.Request, t *fakeTopic) { answer(w, 200, t.describe()) }))
	mux.HandleFunc("PATCH /topics/{topic}", f.with(func(w http.ResponseWriter, r *http.Request, t *fakeTopic) {
		_ = json.NewDecoder(r.Body).Decode(&t.settings)
		answer(w, 200, t.describe())
	}))
	mux.HandleFunc("DELETE /topics/{topic}", f.with(func(w http.ResponseWriter, r *http.Request, t *fakeTopic) {
		delete(f.topics, t.name)
		w.WriteHeader(http.StatusNoContent)
	}))
	mux.HandleFunc("POST /topics/{topic}/purge", f.with(purgeFake))
	mux.HandleFunc("POST /topics/{topic}", f.with(f.publish))
	mux.HandleFunc("GET /topics/{topic}", f.with(f.poll))
	mux.HandleFunc("GET /topics/{topic}/events", f.events)
	f.serveGroups(mux)
	f.serveRequests(mux)
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.calls = append(f.calls, r.Method+" "+r.URL.Path)
		f.bearer = r.Header.Get("Authorization")
		f.mu.Unlock()
		mux.ServeHTTP(w, r)
	}))
	return f
}

// takes pops the next trouble of a call; empty: none.
func (f *fake) takes(call string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.takesLocked(call)
}

func (f *fake) takesLocked(call string) (what string) {
	if q := f.trouble[call]; len(q) > 0 {
		what, f.trouble[call] = q[0], q[1:]
	}
	return what
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func problemOf(k fault.Kind, detail string) map[string]any {
	return map[string]any{"type": "/problems/" + k.Code(), "title": k.Title(), "status": k.Status(), "detail": detail, "code": k.Code()}
}

func refuse(w http.ResponseWriter, k fault.Kind, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(k.Status())
	_ = json.NewEncoder(w).Encode(problemOf(k, detail))
}

func (f *fake) with(do func(http.ResponseWriter, *http.Request, *fakeTopic)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		t, ok := f.topics[r.PathValue("topic")]
		if !ok {
			refuse(w, fault.TopicNotFound, "there is no topic "+r.PathValue("topic"))
			return
		}
		do(w, r, t)
	}
}

func purgeFake(w http.ResponseWriter, r *http.Request, t *fakeTopic) {
	var asked struct{ Before map[int]int64 }
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		refuse(w, fault.Invalid, err.Error())
		return
	}
	t.purged = map[int]int64{}
	parts := []any{}
	for i, log := range t.logs {
		before, named := asked.Before[i]
		switch {
		case asked.Before == nil:
			before = int64(len(log))
		case !named:
			continue
		case before > int64(len(log)):
			refuse(w, fault.Invalid, fmt.Sprintf("partition %d of topic %q ends at offset %d", i, t.name, len(log)))
			return
		}
		t.purged[i] = before
		parts = append(parts, map[string]any{"partition": i, "earliest": before})
	}
	answer(w, 200, map[string]any{"topic": t.name, "partitions": parts})
}

func (f *fake) create(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var s map[string]any
	if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
		refuse(w, fault.Invalid, err.Error())
		return
	}
	name := s["name"].(string)
	if n, ok := s["replicas"].(float64); ok && n > 1 {
		refuse(w, fault.Invalid, "replicas: there is 1 broker")
		return
	}
	if t, ok := f.topics[name]; ok {
		answer(w, 200, t.describe())
		return
	}
	n := 1
	if p, ok := s["partitions"].(float64); ok {
		n = int(p)
	}
	f.topics[name] = &fakeTopic{name: name, settings: s, logs: make([][]string, n), next: map[string]int64{}, first: map[string]map[int64]int64{}}
	answer(w, 201, f.topics[name].describe())
}

func (f *fake) list(w http.ResponseWriter, r *http.Request) {
	if f.takes("list") == "missing" {
		p := problemOf(fault.Unauthorized, "a token is needed")
		p["reason"] = "missing"
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(fault.Unauthorized.Status())
		_ = json.NewEncoder(w).Encode(p)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	all := []any{}
	for _, t := range f.topics {
		all = append(all, t.describe())
	}
	answer(w, 200, map[string]any{"topics": all})
}

func (t *fakeTopic) describe() map[string]any {
	var parts []any
	n := uint64(len(t.logs))
	for i, log := range t.logs {
		part := map[string]any{
			"id": i, "lo": uint64(i) * ident.HashSpace / n, "hi": uint64(i+1) * ident.HashSpace / n, "state": "open",
			"leader": "n1", "leader_epoch": 1, "replicas": []string{"n1"}, "isr": []string{"n1"}, "earliest": t.purged[i], "hw": len(log),
		}
		if t.name == "lost" && i == 0 { // nobody leads it
			part["leader"], part["isr"], part["earliest"], part["hw"] = nil, []string{}, nil, nil
		}
		parts = append(parts, part)
	}
	d := map[string]any{
		"id": "0190b0a6-7c1e-7d0c-8f2a-3a1b2c3d4e5f", "name": t.name, "replicas": 1, "min_insync": 1, "retention": map[string]any{"age": "168h", "bytes": 0},
		"max_message_bytes": 1 << 20, "durability": "fsync", "unclean": false, "idempotency_window": "2m0s",
		"layout": map[string]any{"generation": 1, "partitions": parts},
	}
	for k, v := range t.settings {
		if _, known := d[k]; known {
			d[k] = v
		}
	}
	return d
}

// publish takes ndjson for one partition. Troubles: break (nothing done, the
// connection ends), lose (all done, no answer), half (all done, half an answer),
// unknown (all done, 504), busy (503), throttle (the second line is refused for
// the moment).
func (f *fake) publish(w http.ResponseWriter, r *http.Request, t *fakeTopic) {
	what := f.takesLocked("publish")
	switch what {
	case "break":
		panic(http.ErrAbortHandler)
	case "busy":
		refuse(w, fault.LeaderUnavailable, "no leader just now")
		return
	}
	p, err := strconv.Atoi(r.URL.Query().Get("partition"))
	if err != nil || p >= len(t.logs) {
		refuse(w, fault.PartitionNotFound, "no such partition")
		return
	}
	var results []any
	seq, _ := strconv.ParseInt(r.Header.Get("Tidewire-Sequence"), 10, 64)
	lines := bufio.NewScanner(r.Body)
	for lines.Scan() {
		if what == "throttle" && len(results) == 1 {
			results = append(results, problemOf(fault.Throttled, "not so fast"))
		} else {
			results = append(results, t.keep(p, r.Header.Get("Tidewire-Producer"), seq, lines.Bytes()))
		}
		seq++
	}
	close(f.changed)
	f.changed = make(chan struct{})
	switch what {
	case "lose":
		panic(http.ErrAbortHandler)
	case "unknown":
		refuse(w, fault.UnknownOutcome, "it may have been kept")
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusMultiStatus)
	for i, res := range results {
		if what == "half" && i >= len(results)/2 {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		_ = json.NewEncoder(w).Encode(res)
	}
}

func (t *fakeTopic) keep(p int, producer string, seq int64, line []byte) map[string]any {
	who := fmt.Sprintf("%s/%d", producer, p)
	if producer != "" {
		if next := t.next[who]; seq > next {
			d := problemOf(fault.OutOfOrderSequence, "a sequence was skipped")
			d["expected"] = next
			return d
		} else if seq < next {
			return map[string]any{"topic": t.name, "partition": p, "offset": t.first[who][seq], "duplicate": true}
		}
		t.next[who] = seq + 1
	}
	var rec map[string]json.RawMessage
	if err := json.Unmarshal(line, &rec); err != nil {
		return problemOf(fault.Invalid, err.Error())
	}
	if strings.Contains(string(rec["value"]), "refuse me") {
		return problemOf(fault.MessageTooLarge, "the record is too large for the topic")
	}
	offset := int64(len(t.logs[p]))
	if producer != "" {
		if t.first[who] == nil {
			t.first[who] = map[int64]int64{}
		}
		t.first[who][seq] = offset
	}
	value, name := rec["value"], "value"
	if v, ok := rec["value_base64"]; ok {
		value, name = v, "value_base64"
	}
	field := func(name, absent string) string {
		if v, ok := rec[name]; ok {
			return string(v)
		}
		return absent
	}
	t.logs[p] = append(t.logs[p], fmt.Sprintf(`{"topic":%q,"partition":%d,"offset":%d,"timestamp":"2026-01-31T15:04:05Z","key":%s,"content_type":%s,"headers":%s,%q:%s}`,
		t.name, p, offset, field("key", "null"), field("content_type", `"application/json"`), field("headers", "{}"), name, value))
	return map[string]any{"topic": t.name, "partition": p, "offset": offset, "timestamp": "2026-01-31T15:04:05Z", "duplicate": false}
}

// place reads where a reader stands: an offset for each partition.
func (t *fakeTopic) place(r *http.Request) []int {
	at := make([]int, len(t.logs))
	q := r.URL.Query()
	cursor := q.Get("cursor")
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		cursor = id
	}
	if q.Get("from") == "latest" || q.Get("offset") == "latest" {
		for i, log := range t.logs {
			at[i] = len(log)
		}
	}
	for i, part := range strings.Split(cursor, ".") {
		if n, err := strconv.Atoi(part); err == nil && i < len(at) {
			at[i] = n
		}
	}
	return at
}

func cursorOf(at []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(at), " ", "."), "[]")
}

// after returns the next message for a reader and moves its place.
func (t *fakeTopic) after(at []int, r *http.Request) (string, bool) {
	q := r.URL.Query()
	for i, log := range t.logs {
		if p := q.Get("partition"); p != "" && p != strconv.Itoa(i) {
			continue
		}
		for at[i] < len(log) {
			m := log[at[i]]
			at[i]++
			if k := q.Get("key"); k == "" || strings.Contains(m, fmt.Sprintf(`"key":%q`, k)) {
				return m, true
			}
		}
	}
	return "", false
}

func (f *fake) poll(w http.ResponseWriter, r *http.Request, t *fakeTopic) {
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	limit = min(limit, 7) // several pages, however little there is
	if strings.HasPrefix(r.URL.Query().Get("cursor"), "foo") {
		d := problemOf(fault.CursorExpired, "this is not a cursor; go on from the cursor in this answer")
		d["cursor"] = cursorOf(make([]int, len(t.logs)))
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(fault.CursorExpired.Status())
		_ = json.NewEncoder(w).Encode(d)
		return
	}
	if f.takesLocked("poll") == "expired" {
		refuse(w, fault.Unauthorized, "the token has expired")
		return
	}
	at := t.place(r)
	messages := []json.RawMessage{}
	end := false
	for len(messages) < limit {
		m, ok := t.after(at, r)
		if !ok {
			end = true
			break
		}
		messages = append(messages, json.RawMessage(m))
	}
	answer(w, 200, map[string]any{"messages": messages, "cursor": cursorOf(at), "end": end})
}

// events streams. Troubles: a number (the connection ends after so many
// messages, the ids of which came only with every third), closing, gone (404),
// expired (401),
// deleted (what there is, then the word that the topic is no more).
func (f *fake) events(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	t := f.topics[r.PathValue("topic")]
	what := f.takesLocked("events")
	var at []int
	if t != nil {
		at = t.place(r)
	}
	f.mu.Unlock()
	if t == nil || what == "gone" {
		refuse(w, fault.TopicNotFound, "there is no such topic")
		return
	}
	if what == "expired" {
		refuse(w, fault.Unauthorized, "the token has expired")
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	cut, err := strconv.Atoi(what)
	if err != nil {
		cut = -1
	}
	fmt.Fprintf(w, "retry: 10\nid: %s\n\n", cursorOf(at))
	for n := 0; ; {
		f.mu.Lock()
		m, ok := t.after(at, r)
		changed := f.changed
		f.mu.Unlock()
		switch {
		case cut >= 0 && n >= cut:
			_ = out.Flush()
			panic(http.ErrAbortHandler)
		case ok:
			if n++; n%3 == 0 {
				fmt.Fprintf(w, "id: %s\n", cursorOf(at))
			}
			fmt.Fprintf(w, "event: message\ndata: %s\n\n", m)
			continue
		case what == "closing":
			fmt.Fprint(w, "event: closing\ndata: {\"reason\":\"drain\",\"retry_after\":\"20ms\"}\n\n")
			return
		case what == "deleted":
			b, _ := json.Marshal(problemOf(fault.TopicNotFound, "the topic was deleted"))
			fmt.Fprintf(w, "event: error\ndata: %s\n\n", b)
			return
		}
		_ = out.Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		case <-time.After(15 * time.Second):
			fmt.Fprint(w, ":\n\n")
		}
	}
}

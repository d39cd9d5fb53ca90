package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"tidewire/gateway/ask"
	"tidewire/gateway/connection"
	"tidewire/gateway/deliver"
	"tidewire/gateway/groups"
	"tidewire/gateway/origin"
	"tidewire/gateway/publish"
	"tidewire/gateway/pulse"
	"tidewire/gateway/stream"
	"tidewire/gateway/turn"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/testkit/memgroup"
)

// node is an API over a cluster in memory, behind a real server.
type node struct {
	t      testing.TB
	memory *memory
	groups *memgroup.Cluster
	asks   *ask.Ask
	api    *API
	taken  func() int // connections that streams have taken from the server
	url    string
	log    *lockedBuffer
	ready  []error
	check  func(r *http.Request, body []byte, res *http.Response, answer []byte) // nil: nothing
}

func newNode(t testing.TB, change ...func(*Config)) *node {
	n := &node{t: t, memory: newMemory(), log: &lockedBuffer{}}
	cluster, lives, working := groupsOver(n.memory)
	n.groups = cluster
	reg := prometheus.NewRegistry()
	connected := connection.New()
	hub := deliver.New(deliver.Config{Source: n.memory, Topology: n.memory})
	crew := turn.NewCrew()
	streams := stream.New(stream.Config{Crew: crew, Hub: hub, Connections: connected})
	n.taken = streams.Taken
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = hub.Run(ctx) })
	running.Go(func() { _ = connected.Run(ctx) })
	running.Go(func() { _ = lives.Run(ctx) })
	running.Go(func() { _ = working.Run(ctx) })
	turning, rest := context.WithCancel(context.Background())
	running.Go(func() { _ = crew.Run(turning) })
	running.Go(func() { _ = streams.Run(ctx); rest() })
	publisher := publish.New(publish.Config{Topology: n.memory, Leader: n.memory})
	n.asks = ask.New(ask.Config{
		Self: n.memory.node, Topology: n.groups, Changes: n.groups, Publisher: publisher, Reader: n.memory, Registerer: reg, Pending: 32,
		Mail: func(ident.NodeID) (ask.Mail, error) { return nil, fault.New(fault.LeaderUnavailable, "none") },
	})
	running.Go(func() { _ = n.asks.Run(ctx) })
	cfg := Config{
		Topology: n.groups, Control: n.memory, Groups: working, Nodes: n.memory.nodes(connected), Reader: hub, Streams: streams,
		Publisher: publisher, Ask: n.asks,
		NotReady:  func() []error { return n.ready },
		WebSocket: http.HandlerFunc(echo),
		Pages: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/" && r.URL.Path != "/assets/app.js" {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = io.WriteString(w, "<!doctype html><title>page</title>")
		}),
		Origins:  origin.New([]string{"https://app.example.com"}, ""),
		Gatherer: reg, Registerer: reg,
		Logger: slog.New(slog.NewTextHandler(n.log, nil)),
	}
	for _, c := range change {
		c(&cfg)
	}
	n.api = New(cfg)
	server := httptest.NewUnstartedServer(nil)
	server.Config = NewServer(n.api)
	server.Listener = Patient(server.Listener)
	server.Start()
	n.url = server.URL
	t.Cleanup(func() {
		n.api.Drain()
		_ = streams.Drain(context.Background())
		server.Close()
		cancel()
		running.Wait()
	})
	return n
}

// groupsOver are consumer groups of what is in memory.
func groupsOver(m *memory) (*memgroup.Cluster, *pulse.Pulse, *groups.Groups) {
	c := memgroup.New(m)
	lives := pulse.New(c.Touch)
	return c, lives, groups.New(groups.Config{
		Self: m.node, Topology: c, Changes: c, Places: m, Propose: c.Propose, Pulse: lives,
		Broker: func(id ident.NodeID) (groups.Broker, error) { return c.Broker(id), nil },
	})
}

// echo is a WebSocket that gives its first message back.
func echo(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer conn.CloseNow()
	kind, b, err := conn.Read(context.Background())
	if err == nil {
		_ = conn.Write(context.Background(), kind, b)
		_, _, _ = conn.Read(context.Background()) // the close
	}
}

// got is what a call got.
type got struct {
	status int
	header http.Header
	body   []byte
}

// json decodes an answer that is one object.
func (r got) json(t testing.TB) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal(r.body, &v); err != nil {
		t.Fatalf("no JSON: %v in %q", err, r.body)
	}
	return v
}

// lines decodes an answer of one object a line.
func (r got) lines(t testing.TB) (out []map[string]any) {
	t.Helper()
	for line := range bytes.Lines(r.body) {
		out = append(out, got{body: line}.json(t))
	}
	return out
}

// call sends one request; headers are "Name: value".
func (n *node) call(method, path, body string, headers ...string) got {
	n.t.Helper()
	return n.send(method, path, body, headers...).checked(n)
}

// answered is an answer that has yet to be held against the document.
type answered struct {
	req  *http.Request
	res  *http.Response
	sent []byte
	body []byte
	err  error
}

// send is call in any goroutine.
func (n *node) send(method, path, body string, headers ...string) (a answered) {
	req, err := http.NewRequest(method, n.url+path, strings.NewReader(body))
	if err != nil {
		return answered{err: err}
	}
	if body == "" {
		req.Body, req.ContentLength = nil, 0
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header[name] = append(req.Header[name], value)
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return answered{err: fmt.Errorf("%s %s: %w", method, path, err)}
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return answered{req, res, []byte(body), b, err}
}

func (a answered) checked(n *node) got {
	n.t.Helper()
	if a.err != nil {
		n.t.Fatal(a.err)
	}
	if n.check != nil {
		n.check(a.req, a.sent, a.res, a.body)
	}
	return got{a.res.StatusCode, a.res.Header, a.body}
}

// until looks again and again whether something has come about that nobody tells of.
func (n *node) until(is func() bool) {
	n.t.Helper()
	late := time.After(10 * time.Second)
	for tick := time.Tick(time.Millisecond); !is(); {
		select {
		case <-tick:
		case <-late:
			n.t.Fatal("it has not come about")
		}
	}
}

// want calls and holds the status against what is wanted.
func (n *node) want(status int, method, path, body string, headers ...string) got {
	n.t.Helper()
	r := n.call(method, path, body, headers...)
	if r.status != status {
		n.t.Fatalf("%s %s: status %d, want %d: %s", method, path, r.status, status, r.body)
	}
	return r
}

// topic creates one with settings such as `"partitions":4`.
func (n *node) topic(name, settings string) {
	n.t.Helper()
	if settings != "" {
		settings = "," + settings
	}
	n.want(http.StatusCreated, "POST", "/topics/", `{"name":"`+name+`"`+settings+`}`)
}

// lockedBuffer is a log that tests read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

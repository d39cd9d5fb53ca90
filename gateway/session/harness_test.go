package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"tidewire/gateway/deliver"
	"tidewire/gateway/origin"
	"tidewire/gateway/session"
	"tidewire/gateway/turn"
	"tidewire/internal/testkit/memnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node serves /ws over memory.
type node struct {
	*publisher
	hub      *deliver.Hub
	manager  *session.Manager
	reg      *prometheus.Registry
	client   *http.Client
	dialed   chan net.Conn // the client's ends
	listener *memnet.Listener
	wrap     func(http.Handler) http.Handler // the manager, for requests to come; nil: as it is
}

func newNode(t testing.TB, change ...func(*session.Config)) *node {
	t.Helper()
	n := &node{publisher: newPublisher(), reg: prometheus.NewRegistry(), dialed: make(chan net.Conn, 1000), listener: memnet.Listen()}
	deliveries := deliver.NewMetrics(n.reg)
	n.hub = deliver.New(deliver.Config{Source: n.Broker, Topology: n.Broker, RingBytes: 20_000, Metrics: deliveries})
	crew := turn.NewCrew()
	cfg := session.Config{
		Crew: crew, Hub: n.hub, Topology: n.Broker, Publisher: n.publisher, Node: "one",
		MaxFrameBytes: 100_000, MaxSubscriptions: 4, Deliveries: deliveries, Registerer: n.reg,
		Origins: origin.New([]string{"https://app.example"}, "node:80"),
	}
	for _, c := range change {
		c(&cfg)
	}
	n.manager = session.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = n.hub.Run(ctx) })
	working, rest := context.WithCancel(context.Background())
	running.Go(func() { _ = crew.Run(working) })
	running.Go(func() { _ = n.manager.Run(ctx); rest() })
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n.wrap != nil {
			n.wrap(n.manager).ServeHTTP(w, r)
			return
		}
		n.manager.ServeHTTP(w, r)
	})}
	running.Go(func() { _ = srv.Serve(n.listener) })
	tr := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := n.listener.Dial(ctx, network, addr)
		if err == nil {
			n.dialed <- c
		}
		return c, err
	}}
	n.client = &http.Client{Transport: tr}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		cancel()
		_ = srv.Close()
		running.Wait()
		n.wait.Wait()
	})
	return n
}

// client reads everything the server sends, at once, until pause.
type client struct {
	ws     *websocket.Conn
	conn   net.Conn
	mu     sync.Mutex
	lines  []string
	frames int
	err    error
	more   chan struct{}
	done   sync.WaitGroup
	pings  []time.Time
	gate   chan struct{} // not nil: the pump waits here
	pace   time.Duration // of the pump, a frame
}

// pause stops reading at the next frame, until the gate it returns is closed.
func (c *client) pause() chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gate = make(chan struct{})
	return c.gate
}

func (n *node) dial(t *testing.T, query string, silent bool) *client {
	t.Helper()
	c := &client{more: make(chan struct{}, 1)}
	ws, res, err := websocket.Dial(context.Background(), "ws://node/ws"+query, &websocket.DialOptions{
		HTTPClient: n.client, Subprotocols: []string{session.Subprotocol},
		OnPingReceived: func(context.Context, []byte) bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.pings = append(c.pings, time.Now())
			return !silent
		},
	})
	if err != nil {
		t.Fatalf("dial: %v %+v", err, res)
	}
	c.ws = ws
	for { // the newest connection is ours
		select {
		case c.conn = <-n.dialed:
			continue
		default:
		}
		break
	}
	ws.SetReadLimit(-1)
	c.done.Go(c.pump)
	t.Cleanup(c.vanish)
	return c
}

func (c *client) pump() {
	for {
		kind, b, err := c.ws.Read(context.Background())
		c.mu.Lock()
		if err == nil && kind == websocket.MessageText {
			c.lines = append(c.lines, strings.Split(string(b), "\n")...)
			c.frames++
		} else {
			c.err = errors.Join(err, errIf(err == nil, "a binary frame"))
		}
		c.mu.Unlock()
		c.mu.Lock()
		gate, pace := c.gate, c.pace
		c.mu.Unlock()
		if pace > 0 {
			<-time.After(pace)
		}
		if gate != nil {
			<-gate
		}
		select {
		case c.more <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

func errIf(b bool, text string) error {
	if b {
		return errors.New(text)
	}
	return nil
}

// vanish cuts the connection without a word.
func (c *client) vanish() { _ = c.conn.Close(); c.done.Wait(); _ = c.ws.CloseNow() }

func (c *client) send(t *testing.T, lines ...string) {
	t.Helper()
	if err := c.ws.Write(context.Background(), websocket.MessageText, []byte(strings.Join(lines, "\n"))); err != nil {
		t.Fatalf("send %q: %v", lines, err)
	}
}

// line is the next line, or an error when the connection ends before, or
// nothing comes for two minutes.
func (c *client) line() (string, error) {
	late := time.After(2 * time.Minute)
	for {
		c.mu.Lock()
		if len(c.lines) > 0 {
			l := c.lines[0]
			c.lines = c.lines[1:]
			c.mu.Unlock()
			return l, nil
		}
		err := c.err
		c.mu.Unlock()
		if err != nil {
			return "", err
		}
		select {
		case <-c.more:
		case <-late:
			return "", errors.New("nothing came for two minutes")
		}
	}
}

// object is a line from the server, decoded.
type object map[string]any

func (o object) str(name string) string { s, _ := o[name].(string); return s }
func (o object) num(name string) int    { f, _ := o[name].(float64); return int(f) }

func (c *client) next(t *testing.T) object {
	t.Helper()
	l, err := c.line()
	if err != nil {
		t.Fatal(err)
	}
	o := object{}
	if err := json.Unmarshal([]byte(l), &o); err != nil {
		t.Fatalf("line %q: %v", l, err)
	}
	return o
}

// want is the next line of an op; anything else but the given ops fails.
func (c *client) want(t *testing.T, op string, skip ...string) object {
	t.Helper()
	for {
		o := c.next(t)
		if o.str("op") == op {
			return o
		}
		if !strings.Contains(strings.Join(skip, " "), o.str("op")) || o.str("op") == "" {
			t.Fatalf("got %v, want %s", o, op)
		}
	}
}

// messages are the next n messages of any subscription, with their lines
// checked against the heads before them. Cursors in between are passed over.
func (c *client) messages(t *testing.T, n int) (out []object) {
	t.Helper()
	for len(out) < n {
		head := c.want(t, "messages", "cursor")
		for range head.num("count") {
			m := c.next(t)
			if _, has := m["op"]; has || m.str("topic") == "" {
				t.Fatalf("%v is no message", m)
			}
			m["sub"] = head.str("sub")
			out = append(out, m)
		}
	}
	if len(out) > n {
		t.Fatalf("%d messages, %d were to come", len(out), n)
	}
	return out
}

// closed waits for the end and is its close code.
func (c *client) closed(t *testing.T) (websocket.StatusCode, string) {
	t.Helper()
	for {
		if _, err := c.line(); err != nil {
			var ce websocket.CloseError
			if !errors.As(err, &ce) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
				t.Fatalf("%v", err)
			}
			return websocket.CloseStatus(err), ce.Reason
		}
	}
}

func (n *node) open(t *testing.T) *client {
	t.Helper()
	c := n.dial(t, "", false)
	c.want(t, "welcome")
	return c
}

func ids(list []object) string {
	var out []string
	for _, m := range list {
		out = append(out, fmt.Sprintf("%d:%d", m.num("partition"), m.num("offset")))
	}
	return strings.Join(out, " ")
}

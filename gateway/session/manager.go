package session

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"tidewire/gateway/budget"
	"tidewire/gateway/connection"
	"tidewire/gateway/deliver"
	"tidewire/gateway/guard"
	"tidewire/gateway/origin"
	"tidewire/gateway/publish"
	"tidewire/gateway/quota"
	"tidewire/gateway/reply"
	"tidewire/gateway/seats"
	"tidewire/gateway/topology"
	"tidewire/gateway/turn"
	"tidewire/internal/cluster"
)

// Publisher takes records in; done is called exactly once, perhaps before
// Publish returns, with a result that has the request's tag. Publish copies the
// record and may block.
type Publisher interface {
	Publish(req publish.Request, done func(publish.Result))
}

// Defaults of a node's connections.
const (
	// DefaultMaxFrameBytes has room for the largest message in base64.
	DefaultMaxFrameBytes    = cluster.MaxMessageBytes*4/3 + 128<<10
	DefaultMaxSubscriptions = 128
	DefaultPing             = 25 * time.Second

	// MaxInFlightPublishes and maxInFlightBytes bound what one connection has
	// sent and not heard of; past either its frames are read no further.
	MaxInFlightPublishes = 4096
	maxInFlightBytes     = 32 << 20
	// maxOutboxBytes bounds answers that the client does not take: past it its
	// frames are read no further, so each answer still to come belongs to a
	// publish in flight.
	maxOutboxBytes = 1 << 20
	// maxBadLines in a row are no mistake any more.
	maxBadLines = 20
	// maxControls is how many pings and pongs in a second are no signs of life any
	// more. One that was not read for a while has some of them waiting.
	maxControls = 1000
	// maxUnheardPings without a byte from the client, and it is gone.
	maxUnheardPings = 2
	// shutTime is how long a connection lasts at most that is being closed.
	shutTime = 5 * time.Second
	// closeTimeout is how long the client may take to answer a close.
	closeTimeout = 2 * time.Second
)

// Config of the connections of a node. A zero field means its default.
type Config struct {
	Crew      *turn.Crew       // gives connections their turns; required
	Hub       *deliver.Hub     // required
	Topology  topology.Present // required
	Publisher Publisher        // required
	Groups    Groups           // nil: none are served
	Ask       Asker            // nil: no requests are served
	Held      *budget.Budget   // bounds what is leased and not written; nil: one of its own
	Node      string           // the node's name, for welcome
	Seats     *seats.Seats     // nil: no bound

	Guard       *guard.Guard    // nil: nobody is asked
	Quota       *quota.Quota    // of each client that publishes; nil: no bound
	Connections *connection.Set // gets every connection; nil: a set that nobody sees

	Origins             origin.Policy // which pages may connect
	MaxSubscriptions    int           // of a connection; 128
	MaxFrameBytes       int           // of a client's frame
	SlowConsumerTimeout time.Duration
	Ping                time.Duration // 25 s
	DrainWindow         time.Duration

	Logger     *slog.Logger
	Deliveries *deliver.Metrics      // nil: its own, unregistered
	Registerer prometheus.Registerer // may be nil
}

func (c Config) withDefaults() Config {
	c.MaxSubscriptions = cmp.Or(c.MaxSubscriptions, DefaultMaxSubscriptions)
	c.MaxFrameBytes = cmp.Or(c.MaxFrameBytes, DefaultMaxFrameBytes)
	c.SlowConsumerTimeout = cmp.Or(c.SlowConsumerTimeout, deliver.DefaultSlowConsumerTimeout)
	c.Ping = cmp.Or(c.Ping, DefaultPing)
	c.DrainWindow = cmp.Or(c.DrainWindow, seats.DefaultWindow)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.Deliveries = cmp.Or(c.Deliveries, deliver.NewMetrics(nil))
	if c.Guard == nil {
		c.Guard = guard.New(guard.Config{})
	}
	c.Quota = cmp.Or(c.Quota, quota.New(0))
	if c.Held == nil {
		c.Held = budget.New(budget.DefaultBytes)
	}
	c.Connections = cmp.Or(c.Connections, connection.New())
	c.Seats = cmp.Or(c.Seats, seats.New(0, 0, 0, c.Deliveries.Refused))
	return c
}

// Manager is the set of a node's WebSocket connections and the handler of /ws.
// Each connection has a goroutine that reads, while there is something to read now and then;
// a crew of workers writes for all.
type Manager struct {
	cfg     Config
	metrics metrics

	desks []*desk // by worker

	mu       sync.Mutex
	sessions map[*session]struct{}
	closed   bool
	parting  seats.Parting  // once closed, or sent away
	open     sync.WaitGroup // requests being served, and what sessions have running
}

// New makes the set; it starts nothing.
func New(cfg Config) *Manager {
	m := &Manager{cfg: cfg.withDefaults(), sessions: map[*session]struct{}{}}
	m.metrics = newMetrics(cfg.Registerer)
	for _, w := range m.cfg.Crew.Workers() {
		m.desks = append(m.desks, newDesk(w, m.cfg.Deliveries))
	}
	return m
}

// Run waits until ctx ends, cuts the connections that are left (Drain comes
// before, where there is time) and waits for them. The crew has to run for longer.
func (m *Manager) Run(ctx context.Context) error {
	<-ctx.Done()
	m.refuse(ctx)
	for _, s := range m.all() {
		s.cut()
	}
	m.open.Wait()
	return nil
}

// Depart sends the clients that are there away as Drain does, and returns once they
// are told or ctx ends. Those that come are served as ever.
func (m *Manager) Depart(ctx context.Context) {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return
	}
	parting := m.cfg.Seats.Departing(m.cfg.DrainWindow)
	m.parting = parting
	m.mu.Unlock()
	all := m.all()
	parting.Tell(ctx, len(all), func(i int) { all[i].drain() })
}

// Drain tells every client where its subscriptions stand and when to come back,
// waits for the publishes in flight and closes with 1012. Connections that are
// left when ctx ends are cut. New ones are refused from the first moment on.
func (m *Manager) Drain(ctx context.Context) error {
	parting := m.refuse(ctx)
	all := m.all()
	parting.Tell(ctx, len(all), func(i int) { all[i].drain() })
	done := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() { m.open.Wait(); close(done) })
	defer wait.Wait()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		for _, s := range m.all() {
			s.cut()
		}
		return ctx.Err()
	}
}

func (m *Manager) refuse(ctx context.Context) seats.Parting {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.closed, m.parting = true, m.cfg.Seats.PartingWithin(ctx, m.cfg.DrainWindow)
	}
	return m.parting
}

func (m *Manager) all() []*session {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]*session, 0, len(m.sessions))
	for s := range m.sessions {
		out = append(out, s)
	}
	return out
}

// enter counts a request in; false once connections are refused.
func (m *Manager) enter() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.open.Add(1)
	return true
}

// add makes a session known to Drain and Run. One that comes while they are at
// it is drained at once.
func (m *Manager) add(s *session) {
	m.mu.Lock()
	m.sessions[s] = struct{}{}
	closed := m.closed
	m.mu.Unlock()
	if closed {
		s.drain()
	}
}

func (m *Manager) remove(s *session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sessions, s)
}

// ServeHTTP turns the request into a WebSocket and serves it to its end.
func (m *Manager) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !m.enter() {
		reply.HTTP(w, m.leaving().Refusal())
		return
	}
	defer m.open.Done()
	if err := m.serve(w, r); err != nil {
		m.cfg.Guard.Refused(overWebSocket, r.RemoteAddr, m.callerOf(r), err)
		reply.HTTP(w, err)
	}
}

// serve returns an error only while the answer has not begun.
func (m *Manager) serve(w http.ResponseWriter, r *http.Request) error {
	if err := m.checkUpgrade(w, r); err != nil {
		return err
	}
	if err := m.cfg.Seats.Admit(); err != nil {
		return err
	}
	caller := m.callerOf(r)
	start, reference, err := m.start(r, caller)
	if err != nil {
		return err
	}
	release, err := m.cfg.Seats.Take(r)
	if err != nil {
		return err
	}

	s := newSession(m, r.RemoteAddr)
	hj := &hijacker{ResponseWriter: w, slow: m.cfg.SlowConsumerTimeout}
	s.ws, err = websocket.Accept(hj, r, &websocket.AcceptOptions{
		Subprotocols:       []string{Subprotocol},
		InsecureSkipVerify: true, // checkOrigin has
		CompressionMode:    websocket.CompressionDisabled,
		OnPingReceived:     s.pinged,
		OnPongReceived:     s.ponged,
	})
	if err != nil {
		release()
		m.cfg.Logger.Debug("an upgrade failed", "address", r.RemoteAddr, "err", err)
		return nil // the library has answered
	}
	s.socket = hj.socket
	s.ws.SetReadLimit(-1) // readAll bounds frames, so that what is to be said before 1009 is said
	gauge := m.cfg.Deliveries.Connections.WithLabelValues(deliver.WebSocket)
	gauge.Inc()
	m.add(s)
	s.release = release
	// On a goroutine of its own: the server's has served, with all it holds.
	m.open.Go(func() {
		s.begin(caller, start, reference)
		s.Run()
	})
	return nil
}

// connectionID names a connection in welcome, logs and metrics.
func connectionID() string { return uuid.NewString() }

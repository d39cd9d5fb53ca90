package stream

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidewire/gateway/connection"
	"tidewire/gateway/deliver"
	"tidewire/gateway/seats"
	"tidewire/gateway/turn"
)

// Config of the streams of a node. A zero field means its default.
type Config struct {
	Crew  *turn.Crew   // gives streams their turns; required
	Hub   *deliver.Hub // required
	Seats *seats.Seats // nil: no bound
	// Connections gets every stream; nil: a set that nobody sees.
	Connections         *connection.Set
	SlowConsumerTimeout time.Duration
	DrainWindow         time.Duration
	Logger              *slog.Logger
	Deliveries          *deliver.Metrics      // nil: its own, unregistered
	Registerer          prometheus.Registerer // may be nil
}

func (c Config) withDefaults() Config {
	c.SlowConsumerTimeout = cmp.Or(c.SlowConsumerTimeout, deliver.DefaultSlowConsumerTimeout)
	c.DrainWindow = cmp.Or(c.DrainWindow, seats.DefaultWindow)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.Deliveries = cmp.Or(c.Deliveries, deliver.NewMetrics(nil))
	c.Connections = cmp.Or(c.Connections, connection.New())
	c.Seats = cmp.Or(c.Seats, seats.New(0, 0, 0, c.Deliveries.Refused))
	return c
}

// Set is a node's streams of server-sent events, and answers the requests for
// them.
type Set struct {
	cfg      Config
	metrics  metrics
	desks    []*desk   // by worker
	borrowed sync.Pool // desks of those who have no worker

	mu      sync.Mutex
	streams map[*stream]struct{}
	taken   int           // of them have taken their connection from the server
	closed  bool          // no more of them
	parting seats.Parting // once closed, or sent away
	cut     chan struct{} // closed when the time for goodbyes is over
	over    bool          // cut is closed
	open    sync.WaitGroup
}

// New makes the set; it starts nothing.
func New(cfg Config) *Set {
	s := &Set{cfg: cfg.withDefaults(), streams: map[*stream]struct{}{}, cut: make(chan struct{})}
	s.metrics = newMetrics(cfg.Registerer)
	s.borrowed.New = func() any { return newDesk(s.cfg.Deliveries) }
	for _, w := range s.cfg.Crew.Workers() {
		d := newDesk(s.cfg.Deliveries)
		d.attempt = &w.Attempt
		w.After(d.tally.Tell)
		s.desks = append(s.desks, d)
	}
	return s
}

// Run waits until ctx ends, cuts the streams that are left (Drain comes before,
// where there is time) and waits for them. The crew has to run for longer.
func (s *Set) Run(ctx context.Context) error {
	<-ctx.Done()
	s.refuse(ctx)
	s.cutAll()
	s.open.Wait()
	return nil
}

// Depart tells the streams that are there to go elsewhere, as Drain does, and
// returns once they are told or ctx ends. Those that come are served as ever.
func (s *Set) Depart(ctx context.Context) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	parting := s.cfg.Seats.Departing(s.cfg.DrainWindow)
	s.parting = parting
	s.mu.Unlock()
	all := s.all()
	parting.Tell(ctx, len(all), func(i int) { all[i].drain() })
}

// Drain tells every stream that the node is closing and returns once they have
// ended. Those that are left when ctx ends are cut. New ones are refused from the
// first moment on.
func (s *Set) Drain(ctx context.Context) error {
	parting := s.refuse(ctx)
	all := s.all()
	parting.Tell(ctx, len(all), func(i int) { all[i].drain() })
	done := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() { s.open.Wait(); close(done) })
	defer wait.Wait()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		s.cutAll()
		return ctx.Err()
	}
}

func (s *Set) refuse(ctx context.Context) seats.Parting {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed, s.parting = true, s.cfg.Seats.PartingWithin(ctx, s.cfg.DrainWindow)
	}
	return s.parting
}

// leaving is how the clients leave, once streams are refused.
func (s *Set) leaving() seats.Parting {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.parting
}

// Admit says why no further stream is begun at the moment; it is asked before
// anything is done for one.
func (s *Set) Admit() error { return s.cfg.Seats.Admit() }

func (s *Set) cutAll() {
	s.mu.Lock()
	if !s.over {
		s.over = true
		close(s.cut) // for those on their requests' goroutines
	}
	s.mu.Unlock()
	for _, st := range s.all() {
		if st.wake == nil {
			st.cut()
		}
	}
}

func (s *Set) all() []*stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*stream, 0, len(s.streams))
	for st := range s.streams {
		out = append(out, st)
	}
	return out
}

// enter counts a request in; false once streams are refused.
func (s *Set) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.open.Add(1)
	return true
}

// add makes a stream known to Drain and Run. One that comes while they are at it
// ends as it begins.
func (s *Set) add(st *stream) {
	s.mu.Lock()
	s.streams[st] = struct{}{}
	if st.wake == nil {
		s.taken++
	}
	closed, over := s.closed, s.over
	s.mu.Unlock()
	if closed {
		st.drain()
	}
	if over && st.wake == nil {
		st.cut()
	}
}

func (s *Set) remove(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, st)
	if st.wake == nil {
		s.taken--
	}
}

// Taken is how many connections the server has handed over to streams.
func (s *Set) Taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}

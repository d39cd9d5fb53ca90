package stream

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"tidewire/gateway/connection"
	"tidewire/gateway/deliver"
	"tidewire/gateway/reply"
)

// Intervals of a stream.
const (
	commentEvery = 15 * time.Second // proxies cut what is silent for longer
	idEvery      = time.Second
	idEvents     = 64
)

// Config of the streams of a node. A zero field means its
// default.
type Config struct {
	Hub   *deliver.Hub   // required
	Seats *deliver.Seats // nil: no bound
	// Connections gets every stream; nil: a set that nobody sees.
	Connections         *connection.Set
	SlowConsumerTimeout time.Duration
	DrainWindow         time.Duration
	Logger              *slog.Logger
	Metrics             *deliver.Metrics // nil: its own, unregistered
}

// Set serves subscriptions as server-sent events, each on the goroutine of
// its request.
type Set struct {
	hub   *deliver.Hub
	seats *deliver.Seats

	connections *connection.Set

	slow    time.Duration
	window  time.Duration
	log     *slog.Logger
	metrics *deliver.Metrics

	mu       sync.Mutex
	draining bool
	parting  deliver.Parting // once it is draining
	drain    chan struct{}   // closed by Drain
	cut      chan struct{}   // closed when Drain's time is over
	open     sync.WaitGroup
}

// New makes the set.
func New(cfg Config) *Set {
	m := cmp.Or(cfg.Metrics, deliver.NewMetrics(nil))
	return &Set{
		hub:         cfg.Hub,
		connections: cmp.Or(cfg.Connections, connection.New()),
		seats:       cmp.Or(cfg.Seats, deliver.NewSeats(0, 0, 0, m)),
		slow:        cmp.Or(cfg.SlowConsumerTimeout, deliver.DefaultSlowConsumerTimeout),
		window:      cmp.Or(cfg.DrainWindow, deliver.DefaultDrainWindow),
		log:         cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		metrics:     m,
		drain:       make(chan struct{}),
		cut:         make(chan struct{}),
	}
}

// Admit says why no further stream is begun at the moment; it is asked before
// anything is done for one.
func (s *Set) Admit() error { return s.seats.Admit() }

// Drain tells every stream that the node is closing and returns once they have
// ended, or cuts them short when ctx ends. New ones are refused from then on.
func (s *Set) Drain(ctx context.Context) error {
	s.mu.Lock()
	first := !s.draining
	if first {
		s.draining, s.parting = true, s.seats.PartingWithin(ctx, s.window)
	}
	s.mu.Unlock()
	if !first {
		return nil
	}
	close(s.drain)
	done := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() { s.open.Wait(); close(done) })
	defer wait.Wait()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		close(s.cut)
		return ctx.Err()
	}
}

// enter counts a stream in; false once the node is draining.
func (s *Set) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return false
	}
	s.open.Add(1)
	return true
}

// Serve answers a request with a stream from start on, until the client goes
// away, is too slow, the topic is deleted or the node drains. An error means
// that nothing was written yet.
//
// Every event has one line of data. Its id is the cursor of the whole stream: on
// every event where one partition is read, else on every 64th; where the
// stream has moved for a second without one, an event without data carries it.
func (s *Set) Serve(w http.ResponseWriter, r *http.Request, start deliver.Start) error {
	if !s.enter() {
		return s.parting.Refusal()
	}
	defer s.open.Done()
	release, err := s.seats.Take(r)
	if err != nil {
		return err
	}
	defer release()
	gauge := s.metrics.Connections.WithLabelValues(deliver.SSE)
	gauge.Inc()
	defer gauge.Dec()

	wake := make(chan struct{}, 1)
	poke := func() {
		select {
		case wake <- struct{}{}:
		default: // it is awake already
		}
	}
	sub := s.hub.Subscribe(start, poke)
	defer sub.Close()
	st := &stream{
		streams: s, sub: sub, wake: wake,
		out: eventWriter{w: w, rc: http.NewResponseController(w), slow: s.slow, cut: s.cut},
	}
	st.conn = st.join(r, poke)
	defer st.conn.Leave()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	st.begin(start.Gap)
	err = st.run(r.Context())
	switch {
	case st.out.tooSlow:
		s.metrics.Slow.Inc()
		s.log.Info("closed a slow consumer", "transport", deliver.SSE, "code", reply.CloseSlowConsumer, "address", r.RemoteAddr, "topic", start.Topic.Name)
	case err != nil && r.Context().Err() == nil:
		s.log.Debug("an event stream ended", "address", r.RemoteAddr, "topic", start.Topic.Name, "err", err)
	}
	return nil
}

// retry is when a client of a stream that breaks comes back: jittered, so that
// the clients of a node that breaks do not come back at once.
func retry() time.Duration { return time.Second + rand.N(2*time.Second) }

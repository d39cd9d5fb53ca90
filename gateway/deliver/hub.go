package deliver

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"tidewire/gateway/budget"
	"tidewire/gateway/topology"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// Config of a hub. A zero field means its default.
type Config struct {
	Source   Source          // required
	Topology topology.Source // required
	// RingBytes bounds the encoded messages kept for the readers at the end of
	// one partition; 2 MiB. The newest batch is kept whatever its size.
	RingBytes int
	// RingTotalBytes bounds all rings together: above it a ring keeps its
	// newest batch alone; 256 MiB.
	RingTotalBytes int64
	// Held bounds the answers of polls that clients have not taken; nil: the
	// hub's own.
	Held    *budget.Budget
	Logger  *slog.Logger
	Metrics *Metrics // nil: its own, unregistered
}

// Hub gives each partition that is subscribed to one feed.
type Hub struct {
	source    Source
	topology  topology.Source
	log       *slog.Logger
	metrics   *Metrics
	ringBound int
	ringTotal int64
	ringBytes atomic.Int64 // of all rings
	held      *budget.Budget
	reading   *budget.Budget // batches that polls are taking messages out of

	mu      sync.Mutex
	feeds   map[ident.Partition]*feed
	waiting []*feed       // to be started by Run
	wake    chan struct{} // room for one: waiting is not empty
	stopped bool
}

// New makes a hub; feeds run only while Run does.
func New(cfg Config) *Hub {
	h := &Hub{
		source:    cfg.Source,
		topology:  cfg.Topology,
		log:       cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		metrics:   cmp.Or(cfg.Metrics, NewMetrics(nil)),
		ringBound: cmp.Or(cfg.RingBytes, 2<<20),
		ringTotal: cmp.Or(cfg.RingTotalBytes, 256<<20),
		held:      cfg.Held,
		reading:   budget.New(pollReadingBytes),
		feeds:     map[ident.Partition]*feed{},
		wake:      make(chan struct{}, 1),
	}
	if h.held == nil {
		h.held = budget.New(budget.DefaultBytes)
	}
	return h
}

// Run runs the feeds until ctx ends. Subscriptions left then are told that the
// node is shutting down.
func (h *Hub) Run(ctx context.Context) error {
	var g errgroup.Group
	for {
		for _, f := range h.takeWaiting() {
			g.Go(func() error { f.run(ctx); h.metrics.feeds.Dec(); return nil })
		}
		select {
		case <-h.wake:
		case <-ctx.Done():
			for _, f := range h.stop() {
				f.end(fault.New(fault.Draining, "the node is shutting down"))
			}
			return g.Wait()
		}
	}
}

func (h *Hub) takeWaiting() []*feed {
	h.mu.Lock()
	defer h.mu.Unlock()
	fresh := h.waiting
	h.waiting = nil
	h.metrics.feeds.Add(float64(len(fresh)))
	return fresh
}

// stop refuses new feeds and returns those that never ran.
func (h *Hub) stop() []*feed {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = true
	fresh := h.waiting
	h.waiting = nil
	return fresh
}

// join gives the feed of a partition to one more subscription.
func (h *Hub) join(topic string, ref ident.Partition) *feed {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.feeds[ref]
	if f == nil {
		f = &feed{hub: h, ref: ref, topic: topic, stop: make(chan struct{})}
		f.ring.end = -1
		h.feeds[ref] = f
		if h.stopped {
			f.ended = fault.New(fault.Draining, "the node is shutting down")
		} else {
			h.waiting = append(h.waiting, f)
			select {
			case h.wake <- struct{}{}:
			default: // Run has yet to look at the one before
			}
		}
	}
	f.refs++
	return f
}

// leave ends what join began; the last to leave stops the feed.
func (h *Hub) leave(f *feed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.refs--; f.refs == 0 {
		delete(h.feeds, f.ref)
		close(f.stop)
	}
}

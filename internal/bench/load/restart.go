package load

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"tidewire/internal/bench/figure"
	"tidewire/internal/bench/message"
)

// Restart is subscribers whose server is restarted under them while a publisher
// goes on. They behave as the protocol tells clients to.
type Restart struct {
	Target      Target
	Topic       string // of one partition
	Transport   string // WebSocket or SSE
	Subscribers int
	Bytes       int     // of a value
	Rate        float64 // messages a second
	Flow        time.Duration

	// Publisher is the node that messages come by; the zero value: the one that is
	// restarted.
	Publisher Target
	// Calm is called before the restart, while all are connected; nil: nobody asks.
	Calm func(context.Context) error
}

// Returned is how they came back. Times count from the moment at which the server
// was told to stop, or was killed.
type Returned struct {
	Back        int   `json:"back"`         // of the subscribers
	Told        int64 `json:"told"`         // when to come back, by "closing"
	Attempts    int64 `json:"attempts"`     // to connect
	Unreachable int64 `json:"unreachable"`  // attempts that nobody answered
	Refused     int64 `json:"refused"`      // attempts that the server turned away
	RefusedTold int64 `json:"refused_told"` // and said when to come back
	Down        int64 `json:"down_ms"`      // until the server served again
	AllBack     int64 `json:"all_back_ms"`
	// Window is from the earliest to the latest time that a subscriber was told.
	Window int64 `json:"window_ms"`
	// Buckets are the subscribers that came back in each tenth of a second.
	Buckets []int   `json:"buckets_100ms"`
	Largest float64 `json:"largest_bucket"` // share of all
	// Connect is from the attempt that succeeded to the subscription.
	Connect *figure.Latency `json:"connect_us"`

	Published   int64 `json:"published"`
	Lost        int64 `json:"lost"`
	Duplicates  int64 `json:"duplicates"`
	Gaps        int64 `json:"gaps"` // that the server told of, instead of resuming
	Outstanding int64 `json:"outstanding"`
}

const (
	bucket = 100 * time.Millisecond
	// returnTimeout is how long subscribers may take to come back.
	returnTimeout = 2 * time.Minute
	// knocks bounds the handshakes under way at once: each has a thread.
	knocks = 256
)

// home is what the subscribers of a restart share.
type home struct {
	Restart
	crew   *crew
	knocks chan struct{}

	subscribed atomic.Int64 // now
	fresh      atomic.Int64 // deliveries, each message of a subscriber once

	told, attempts, unreachable, refused, refusedTold, gaps atomic.Int64

	mu      sync.Mutex
	stopped time.Time // zero: not yet
	back    []time.Duration
	due     []time.Time // the earliest and the latest that was told; nil: none
	connect *figure.Histogram
}

// Run connects the subscribers, lets restart stop and start the server, and waits
// until all are back and have got everything.
func (w Restart) Run(ctx context.Context, p Progress, restart func(context.Context) error) (Returned, error) {
	crew, err := newCrew(ctx, w.Subscribers, 0)
	if err != nil {
		return Returned{}, err
	}
	defer crew.stop()
	h := &home{Restart: w, crew: crew, knocks: make(chan struct{}, knocks), connect: figure.NewHistogram()}
	all := make([]*returner, w.Subscribers)
	err = crew.each(w.Subscribers, "connecting subscribers", p, func(i int) error {
		all[i] = &returner{home: h, loop: crew.loops[i%len(crew.loops)], key: MaskKey(), tally: message.NewTally(0, 1), offset: -1}
		return all[i].open()
	})
	if err != nil {
		return Returned{}, err
	}
	everyone := func() bool { return h.subscribed.Load() == int64(w.Subscribers) }
	if err := crew.await(handshakeTimeout, everyone, h.late); err != nil {
		return Returned{}, err
	}
	pub := newPersistent(w)
	publishing, stop := context.WithCancel(crew.ctx)
	defer stop()
	var published sync.WaitGroup
	published.Go(func() { pub.run(publishing) })
	if err := h.flow(p, "messages before"); err != nil {
		return Returned{}, err
	}

	if w.Calm != nil {
		if err := w.Calm(crew.ctx); err != nil {
			return Returned{}, err
		}
	}
	p.Phase("restarting the server", 1)
	h.mu.Lock()
	h.stopped = time.Now()
	h.mu.Unlock()
	if err := restart(crew.ctx); err != nil {
		return Returned{}, err
	}
	down := time.Since(h.stopped)
	p.Phase("coming back", 1)
	if err := crew.await(returnTimeout, everyone, func() error { return nil }); err != nil {
		return Returned{}, err
	}
	if err := h.flow(p, "messages after"); err != nil {
		return Returned{}, err
	}
	stop()
	published.Wait()
	want := pub.kept * int64(w.Subscribers)
	if err := crew.await(returnTimeout, func() bool { return h.fresh.Load() >= want }, func() error { return nil }); err != nil {
		return Returned{}, err
	}
	crew.stop()
	r := h.sum(all)
	r.Down, r.Published, r.Outstanding = down.Milliseconds(), pub.kept, max(0, want-h.fresh.Load())
	return r, nil
}

func (h *home) late() error {
	return fmt.Errorf("after %s %d of %d are subscribed", handshakeTimeout, h.subscribed.Load(), h.Subscribers)
}

// flow lets messages come for a while.
func (h *home) flow(p Progress, what string) error {
	const step = 100 * time.Millisecond
	p.Phase(what, int(h.Flow/step))
	tick := time.NewTicker(step)
	defer tick.Stop()
	for i := range int(h.Flow / step) {
		select {
		case <-h.crew.ctx.Done():
			return context.Cause(h.crew.ctx)
		case <-tick.C:
			p.Step(i + 1)
		}
	}
	return nil
}

// returned notes that one has come back; took is from its attempt on.
func (h *home) returned(took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped.IsZero() {
		return
	}
	h.back = append(h.back, time.Since(h.stopped))
	h.connect.Record(int64(took))
}

// tells notes when a subscriber is to come back.
func (h *home) tells(due time.Time) {
	h.told.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.due == nil {
		h.due = []time.Time{due, due}
	}
	if due.Before(h.due[0]) {
		h.due[0] = due
	}
	if due.After(h.due[1]) {
		h.due[1] = due
	}
}

func (h *home) sum(all []*returner) Returned {
	r := Returned{
		Back: len(h.back), Told: h.told.Load(), Attempts: h.attempts.Load() - int64(h.Subscribers), Unreachable: h.unreachable.Load(), Refused: h.refused.Load(), RefusedTold: h.refusedTold.Load(),
		Gaps: h.gaps.Load(), Connect: h.connect.Latency(),
	}
	if h.due != nil {
		r.Window = h.due[1].Sub(h.due[0]).Milliseconds()
	}
	for _, at := range h.back {
		i := int(at / bucket)
		for len(r.Buckets) <= i {
			r.Buckets = append(r.Buckets, 0)
		}
		r.Buckets[i]++
		r.Largest = max(r.Largest, float64(r.Buckets[i])/float64(h.Subscribers))
		r.AllBack = max(r.AllBack, at.Milliseconds())
	}
	for _, x := range all {
		r.Lost += x.tally.Lost
		r.Duplicates += x.tally.Duplicates
	}
	return r
}

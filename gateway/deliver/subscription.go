package deliver

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tidewire/gateway/cursor"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// Subscription reads a topic from a Start on, for ever. It belongs to one
// goroutine, but for Close, which any may call once that one has let go of it.
//
// Its whole state is an offset for each of its partitions, and at most one
// piece of the log that it is working on: it has no queue and no goroutine.
type Subscription struct {
	hub    *Hub
	topic  *cluster.Topic
	rng    ident.HashRange
	match  matcher
	parts  []*part // by partition
	notify func()
	moved  bool
	passed atomic.Int64 // offsets, over all partitions

	queue []*part // that may have something to read; only the owner looks at it

	mu     sync.Mutex
	woken  []*part // to be queued
	closed atomic.Bool
}

// part is where a subscription stands in one partition.
type part struct {
	sub   *Subscription
	feed  *feed
	index ident.Index
	next  ident.Offset
	epoch ident.Epoch
	began ident.Offset

	life  int      // of the ring when next was last known to be part of the log
	held  []*block // being worked on, from done on
	done  int
	live  bool // held comes from the ring
	pause time.Duration
	retry *time.Timer // while the partition is unavailable

	waiting int // place among the feed's waiters, -1: none; guarded by feed.mu
}

// Subscribe begins a subscription. notify is called, from any goroutine, when
// there may be something to read after Next has said Idle; it must be quick and
// must not call the subscription.
func (h *Hub) Subscribe(start Start, notify func()) *Subscription {
	s := &Subscription{hub: h, topic: start.Topic, rng: start.Range, match: start.Filter.matcher(), notify: notify}
	for _, p := range start.Places {
		s.parts = append(s.parts, &part{
			sub: s, index: p.Partition, next: p.Offset, began: p.Offset, epoch: p.Epoch, life: -1, waiting: -1,
			feed: h.join(start.Topic.Name, start.Topic.Ref(p.Partition)),
		})
	}
	if start.Gap != nil { // whoever subscribes tells its client of it
		h.metrics.gaps.WithLabelValues(start.Gap.Reason).Inc()
	}
	s.queue = slices.Clone(s.parts)
	return s
}

// Close ends the subscription.
func (s *Subscription) Close() {
	if s.closed.Swap(true) {
		return
	}
	for _, p := range s.parts {
		p.feed.leave(p)
		if p.retry != nil {
			p.retry.Stop()
		}
		s.hub.leave(p.feed)
	}
}

// Topic is the topic read.
func (s *Subscription) Topic() *cluster.Topic { return s.topic }

// Single reports whether one partition is read.
func (s *Subscription) Single() bool { return len(s.parts) == 1 }

// Moved reports whether the subscription stands elsewhere than when Cursor was
// last called.
func (s *Subscription) Moved() bool { return s.moved }

// Cursor is where the subscription stands: before whatever Next gives next.
func (s *Subscription) Cursor() string {
	s.moved = false
	return s.at(nil, 0)
}

// CursorAfter is where the subscription stood once message i of the run that
// Next gave last was read.
func (s *Subscription) CursorAfter(r Run, i int) string { return s.at(&r, i) }

func (s *Subscription) at(r *Run, i int) string {
	places := make([]cursor.Place, len(s.parts))
	for k, p := range s.parts {
		places[k] = cursor.Place{Partition: p.index, Epoch: p.epoch, Offset: p.next}
		if r != nil && r.Partition() == p.index {
			places[k].Offset = r.Offset(i) + 1
		}
	}
	return cursor.Of(s.topic, s.rng, places).String()
}

// ready queues a part for the next call of Next.
func (s *Subscription) ready(p *part) {
	if s.closed.Load() {
		return
	}
	s.mu.Lock()
	s.woken = append(s.woken, p)
	first := len(s.woken) == 1
	s.mu.Unlock()
	if first {
		s.notify()
	}
}

// EventKind says what Next found.
type EventKind uint8

const (
	// Idle: everything committed was read; notify is called when there is more.
	Idle EventKind = iota
	// Busy: nothing yet, but some of the log was passed over. Call again, after
	// others had their turn.
	Busy
	// Behind: the log has to be read, and Limit.Ring forbids it. Call again without.
	Behind
	// Messages: Run is not empty.
	Messages
	// Lost: Gap says what is missing; the subscription goes on behind it.
	Lost
	// Stuck: Err says why nothing more will come from one partition; the others
	// go on.
	Stuck
	// Ended: Err says why nothing more will come.
	Ended
)

// Event is what Next gives.
type Event struct {
	Kind EventKind
	Run  Run
	Gap  *Gap
	Err  error
}

// Next reads on. It does not wait for records, but may read the log: a bounded
// piece of it. Partitions take turns.
func (s *Subscription) Next(ctx context.Context, lim Limit) Event {
	s.takeWoken()
	for len(s.queue) > 0 {
		p := s.queue[0]
		ev, keep := p.step(ctx, lim)
		switch {
		case ev.Kind == Behind: // it stays at the front
		case !keep:
			s.pop()
		case !p.holds() || p.live: // else finish the piece of the log in hand first
			s.pop()
			s.queue = append(s.queue, p)
		}
		if ev.Kind != Idle {
			return ev
		}
	}
	return Event{}
}

func (s *Subscription) pop() {
	copy(s.queue, s.queue[1:])
	s.queue[len(s.queue)-1] = nil
	s.queue = s.queue[:len(s.queue)-1]
}

func (s *Subscription) takeWoken() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, p := range s.woken {
		s.queue = append(s.queue, p)
		s.woken[i] = nil
	}
	s.woken = s.woken[:0]
}

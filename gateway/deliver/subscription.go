package deliver

import (
	"context"
	"sync/atomic"

	"tidewire/gateway/cursor"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// Subscription reads a topic from a Start on, for ever. It belongs to one
// goroutine, but for Behind, and for Close, which any may call once that one has
// let go of it.
//
// Its whole state is an offset for each of its partitions, and at most one
// piece of the log that it is working on: it has no queue and no goroutine.
type Subscription struct {
	hub    *Hub
	topic  *cluster.Topic
	rng    ident.HashRange
	match  matcher
	parts  []part // by partition; never moved, for feeds know where they are
	notify func()

	queue  line                 // that may have something to read; only the owner looks at it
	woken  atomic.Pointer[part] // to be queued, the last one first
	closed atomic.Bool
}

// Subscribe begins a subscription. notify is called, from any goroutine, when
// there may be something to read after Next has said Idle; it must be quick and
// must not call the subscription.
func (h *Hub) Subscribe(start Start, notify func()) *Subscription {
	s := newSubscription(len(start.Places))
	s.hub, s.topic, s.rng, s.match, s.notify = h, start.Topic, start.Range, start.Filter.matcher(), notify
	keys := s.match.keys()
	for i, at := range start.Places {
		p := &s.parts[i]
		p.sub, p.index, p.told, p.epoch, p.life = s, at.Partition, at.Offset, at.Epoch, unseen
		p.next.Store(int64(at.Offset))
		p.feed = h.join(start.Topic.Name, start.Topic.Ref(at.Partition))
		owned := ident.FullRange
		if known, ok := start.Topic.Partition(at.Partition); ok {
			owned = known.Range
		}
		p.feed.enter(p, keys, owned)
		s.queue.push(p)
	}
	if start.Gap != nil { // whoever subscribes tells its client of it
		h.metrics.gaps.WithLabelValues(start.Gap.Reason).Inc()
	}
	return s
}

// newSubscription has room for n parts; one is in the same piece of memory, for
// there may be very many.
func newSubscription(n int) *Subscription {
	if n == 1 {
		single := &struct {
			Subscription
			part [1]part
		}{}
		single.parts = single.part[:]
		return &single.Subscription
	}
	return &Subscription{parts: make([]part, n)}
}

// Close ends the subscription.
func (s *Subscription) Close() {
	if s.closed.Swap(true) {
		return
	}
	for i := range s.parts {
		p := &s.parts[i]
		p.feed.leave(p)
		if p.log != nil && p.log.retry != nil {
			p.log.retry.Stop()
		}
		s.hub.leave(p.feed)
	}
}

// Topic is the topic read.
func (s *Subscription) Topic() *cluster.Topic { return s.topic }

// Single reports whether one partition is read.
func (s *Subscription) Single() bool { return len(s.parts) == 1 }

// Moved reports whether the subscription stands elsewhere than when Cursor was
// last called: by what Next gave or passed over, and by what the feeds passed
// over for it up to the last Refresh.
func (s *Subscription) Moved() bool {
	for i := range s.parts {
		if p := &s.parts[i]; p.offset() != p.told {
			return true
		}
	}
	return false
}

// Refresh lets Moved know of what the feeds passed over since Next said Idle. A
// subscription with a filter is not woken for records that it does not want, and
// yet its cursor must not stay behind for ever.
func (s *Subscription) Refresh() {
	for i := range s.parts {
		s.parts[i].stand()
	}
}

// Cursor is where the subscription stands: before whatever Next gives next.
func (s *Subscription) Cursor() string { return string(s.AppendCursor(nil)) }

// AppendCursor appends Cursor to text. Where one partition is read and there is
// room it allocates nothing.
func (s *Subscription) AppendCursor(text []byte) []byte {
	var one [1]cursor.Place
	places := one[:]
	if len(s.parts) > 1 {
		places = make([]cursor.Place, len(s.parts))
	}
	for i := range s.parts {
		p := &s.parts[i]
		places[i] = p.place()
		p.told = places[i].Offset
	}
	return cursor.Of(s.topic, s.rng, places).AppendTo(text)
}

// CursorAfter is where the subscription stood once message i of the run that
// Next gave last was read.
func (s *Subscription) CursorAfter(r Run, i int) string {
	places := make([]cursor.Place, len(s.parts))
	for k := range s.parts {
		if places[k] = s.parts[k].place(); r.Partition() == places[k].Partition {
			places[k].Offset = r.Offset(i) + 1
		}
	}
	return cursor.Of(s.topic, s.rng, places).String()
}

// Next reads on. It does not wait for records, but may read the log: a bounded
// piece of it. Partitions take turns.
func (s *Subscription) Next(ctx context.Context, lim Limit) Event {
	s.takeWoken()
	for p := s.queue.pop(); p != nil; p = s.queue.pop() {
		ev, keep := p.step(ctx, lim)
		switch {
		case ev.Kind == Behind, keep && p.block != nil && !p.live: // finish the piece of the log in hand first
			s.queue.pushFront(p)
		case keep:
			s.queue.push(p)
		}
		if ev.Kind != Idle {
			return ev
		}
	}
	return Event{}
}

// ready queues a part for the next call of Next.
func (s *Subscription) ready(p *part) {
	if s.closed.Load() {
		return
	}
	for {
		first := s.woken.Load()
		p.link = first
		if s.woken.CompareAndSwap(first, p) {
			if first == nil {
				s.notify()
			}
			return
		}
	}
}

// takeWoken queues those that are ready, the first one first.
func (s *Subscription) takeWoken() {
	if s.woken.Load() == nil {
		return
	}
	var woken *part
	for p := s.woken.Swap(nil); p != nil; {
		next := p.link
		p.link, woken = woken, p
		p = next
	}
	for woken != nil {
		p := woken
		woken = p.link
		p.waits = false
		s.queue.push(p)
	}
}

// line is a queue of parts; each is in one at most.
type line struct{ first, last *part }

func (l *line) push(p *part) {
	p.link = nil
	if l.first == nil {
		l.first = p
	} else {
		l.last.link = p
	}
	l.last = p
}

func (l *line) pushFront(p *part) {
	if p.link = l.first; p.link == nil {
		l.last = p
	}
	l.first = p
}

// pop takes the first one out; nil: there is none. From here on others may link
// it elsewhere.
func (l *line) pop() *part {
	p := l.first
	if p != nil {
		if l.first = p.link; l.first == nil {
			l.last = nil
		}
	}
	return p
}

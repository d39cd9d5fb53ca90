package session

import (
	"context"
	"math"
	"slices"
	"strconv"
	"time"

	"tidewire/gateway/access"
	"tidewire/gateway/deliver"
	"tidewire/gateway/topology"
	"tidewire/internal/fault"
	"tidewire/internal/wire"
)

// unbounded is the credit of a subscription that takes what comes.
const unbounded = -1

// subscription is one of a connection's. What it reads is the writer's; the
// rest is guarded by the session's mutex.
type subscription struct {
	name string
	sub  *deliver.Subscription

	credit int64 // messages the client will take; unbounded
	queued bool  // in session.ready
	gone   bool

	dirty  bool      // in outlet.moved; the writer's
	toldAt time.Time // when the client last heard its cursor; the writer's
}

func (s *session) subscribe(ctx context.Context, f *wire.Frame) error {
	if err := s.refusesNew(); err != nil {
		return err
	}
	q := &f.Subscribe
	if err := s.grant.May(access.Subscribe, q.Topic); err != nil {
		return err
	}
	if err := s.seat(); err != nil {
		return err
	}
	t, err := topology.Topic(ctx, s.m.cfg.Topology, q.Topic)
	if err != nil {
		return err
	}
	start, err := s.m.cfg.Hub.Resolve(ctx, deliver.Request{
		Topic: t, Filter: deliver.NewFilter(q.Partition, q.Key, q.Keys, q.KeyPrefix),
		From: q.From, DefaultFrom: deliver.Latest,
		Cursor: q.Cursor, HasCursor: q.HasCursor, After: q.After,
	})
	if err != nil {
		return err
	}
	s.subscribed(f.ID, start, q.Credit)
	return nil
}

// seat is why the connection takes no further subscription.
func (s *session) seat() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if most := s.m.cfg.MaxSubscriptions; len(s.subs)+len(s.members) >= most {
		return fault.New(fault.Limit, "a connection takes at most %d subscriptions (max_subscriptions); unsubscribe or leave first", most).With("limit", "max_subscriptions")
	}
	return nil
}

// subscribed begins a subscription. Its answer is in the outbox before the
// writer can find its first message.
func (s *session) subscribed(id int64, start deliver.Start, credit int64) {
	s.lastSub++
	x := &subscription{name: "s" + strconv.Itoa(s.lastSub), credit: credit, queued: true}
	x.sub = s.m.cfg.Hub.Subscribe(start, func() { s.enqueue(x) })
	s.m.metrics.subscriptions.Inc()
	line := wire.Open(nil, "subscribed").ID(id).Str("sub", x.name).Str("cursor", start.Cursor()).Bool("recovered", start.Recovered).Close()
	s.mu.Lock()
	s.subs = append(s.subs, x)
	s.pushLocked(line)
	if start.Gap != nil {
		s.pushLocked(gapLine(x.name, start.Gap))
	}
	s.ready = append(s.ready, x)
	s.mu.Unlock()
	s.schedule()
}

func gapLine(sub string, g *deliver.Gap) []byte {
	return g.AppendTo(wire.Open(nil, "gap").Str("sub", sub)).Close()
}

// enqueue lets the writer look at a subscription.
func (s *session) enqueue(x *subscription) {
	s.mu.Lock()
	s.enqueueLocked(x)
	s.mu.Unlock()
	s.schedule()
}

func (s *session) enqueueLocked(x *subscription) {
	if !x.queued && !x.gone {
		x.queued = true
		s.ready = append(s.ready, x)
	}
}

func (s *session) unsubscribe(_ context.Context, f *wire.Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.findLocked(f.Sub)
	if x == nil && s.memberLocked(f.Sub) != nil {
		return fault.New(fault.Invalid, "field \"sub\": %q is a member of a group, who leaves with op \"leave\"", f.Sub).With("field", "sub")
	}
	if x == nil {
		return noSubscription(f.Sub)
	}
	s.dropLocked(x)
	s.pushLocked(wire.Open(nil, "unsubscribed").ID(f.ID).Str("sub", x.name).Close())
	s.schedule()
	return nil
}

// findLocked finds a subscription by its name; nil: there is none.
func (s *session) findLocked(name string) *subscription {
	for _, x := range s.subs {
		if x.name == name {
			return x
		}
	}
	return nil
}

// dropLocked takes a subscription off the connection; the writer closes it.
func (s *session) dropLocked(x *subscription) {
	x.gone = true
	s.subs = slices.DeleteFunc(s.subs, func(q *subscription) bool { return q == x })
	s.gone = append(s.gone, x)
}

func (s *session) credit(_ context.Context, f *wire.Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found, err := s.allowLocked(f.Sub, f.Add); found {
		return err
	}
	x := s.findLocked(f.Sub)
	switch {
	case x == nil:
		return noSubscription(f.Sub)
	case x.credit == unbounded:
		return fault.New(fault.Invalid, "subscription %q was made without \"credit\" and has no bound to raise", x.name).With("field", "sub")
	}
	x.credit = min(x.credit, math.MaxInt64-f.Add) + f.Add
	s.enqueueLocked(x)
	s.schedule()
	return nil
}

// close ends what subscribed began.
func (s *session) close(x *subscription) {
	x.sub.Close()
	s.m.metrics.subscriptions.Dec()
}

// closeAll ends all of them, once reader and writer have ended.
func (s *session) closeAll() {
	s.mu.Lock()
	gone := append(s.gone, s.subs...)
	s.subs, s.gone = nil, nil
	s.mu.Unlock()
	for _, x := range gone {
		s.close(x)
	}
}

func noSubscription(name string) error {
	return fault.New(fault.Invalid, "field \"sub\": this connection has no subscription %q", clip(name)).With("field", "sub")
}

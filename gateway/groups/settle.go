package groups

import (
	"context"
	"sync"
	"time"

	"tidewire/gateway/group"
	"tidewire/gateway/topology"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
	"tidewire/internal/wire"
)

// Settle says what a member has done with its records, and answers once the coordinator
// holds it: with the entries that were not taken. An error means that some may have been.
func (g *Groups) Settle(ctx context.Context, c Caller, entries []wire.Entry) (group.Settled, error) {
	v, err := g.live(ctx, c)
	if err != nil {
		return group.Settled{}, err
	}
	if err := group.Twice(entries); err != nil {
		return group.Settled{}, err
	}
	life := v.LifeOf(c.Member, c.Epoch)
	g.cfg.Pulse.Hear(life)
	var b group.Batch
	b.Add(entries)
	done, err := g.settle(ctx, v, life, &b).Of(entries)
	g.metrics.count(entries, done.Stale, err)
	return done, err
}

// settle brings a batch to the leaders. It goes on when the caller has left: what a member
// has done is done.
func (g *Groups) settle(ctx context.Context, v group.View, life cluster.MemberLife, b *group.Batch) group.Outcome {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	parts := b.Parts(v.Topic.ID)
	byIndex := make(map[ident.Index]rpc.SettleOf, len(parts))
	var of []ident.Index
	var settled []rpc.SettledOf
	var came []time.Time // each of them
	for _, p := range parts {
		i := p.Partition.Index
		if _, err := topology.Partition(v.Topic, i); err != nil {
			settled, came = append(settled, rpc.SettledOf{Partition: p.Partition, Err: err}), append(came, time.Now())
			continue
		}
		byIndex[i], of = p, append(of, i)
	}
	var mu sync.Mutex
	failed := g.each(ctx, v.Topic, of, func(ctx context.Context, to leader, index uint64, refs []ident.Partition) map[ident.Index]error {
		q := rpc.Settle{MemberLife: life, Index: index}
		for _, ref := range refs {
			q.Of = append(q.Of, byIndex[ref.Index])
		}
		g.hands.calls(to.node, &q)
		a, err := to.Settle(ctx, q)
		if err != nil {
			return unanswered(refs, err)
		}
		g.hands.told(to.node, &q, a.Of)
		missing := unanswered(refs, fault.New(fault.UnknownOutcome, "the partition's leader did not say what became of it"))
		now := time.Now()
		mu.Lock()
		defer mu.Unlock()
		for _, p := range a.Of {
			if missing[p.Partition.Index] = p.Err; p.Err == nil {
				delete(missing, p.Partition.Index)
				settled, came = append(settled, p), append(came, now)
			}
		}
		return missing
	})
	for i, err := range failed {
		settled = append(settled, rpc.SettledOf{Partition: v.Topic.Ref(i), Err: err})
	}
	g.hands.settled(life)
	now := time.Now()
	for i := range came { // some answered before others
		rpc.Pass(settled[i].Extended, now.Sub(came[i]))
	}
	return group.Outcomes(settled, now)
}

// Settler says what one life of a member has done with its records, in the order in which
// it is told: one call is under way, and what comes meanwhile goes together with the next.
// It is safe for concurrent use; who adds bounds what is under way.
type Settler struct {
	g    *Groups
	view group.View
	life cluster.MemberLife

	working sync.WaitGroup

	mu    sync.Mutex
	queue []settling
	busy  bool
}

type settling struct {
	entries []wire.Entry
	done    func(group.Settled, error)
}

// Settler makes one.
func (g *Groups) Settler(m Membership) *Settler {
	return &Settler{g: g, view: m.View, life: m.Life()}
}

// Add says something. done is called exactly once, later, by another goroutine.
func (s *Settler) Add(entries []wire.Entry, done func(group.Settled, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, settling{entries, done})
	if !s.busy {
		s.busy = true
		s.working.Go(s.work)
	}
}

// Wait waits until all is answered that was added.
func (s *Settler) Wait() { s.working.Wait() }

func (s *Settler) work() {
	for {
		b, calls := s.next()
		if len(calls) == 0 {
			return
		}
		o := s.g.settle(context.Background(), s.view, s.life, b)
		for _, c := range calls {
			done, err := o.Of(c.entries)
			s.g.metrics.count(c.entries, done.Stale, err)
			c.done(done, err)
		}
	}
}

// next takes what may go together.
func (s *Settler) next() (*group.Batch, []settling) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, n := &group.Batch{}, 0
	for n < len(s.queue) && b.Add(s.queue[n].entries) {
		n++
	}
	calls := s.queue[:n:n]
	s.queue = s.queue[n:]
	s.busy = n > 0
	return b, calls
}

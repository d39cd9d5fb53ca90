package groups

import (
	"context"
	"time"

	"tidewire/broker/lease"
	"tidewire/internal/fault"
	"tidewire/internal/rpc"
)

// Settle takes in what a member has done with its records, and answers once the coordinator
// holds it.
func (g *Groups) Settle(ctx context.Context, s rpc.Settle) (rpc.Settled, error) {
	if err := s.Check(); err != nil {
		return rpc.Settled{}, err
	}
	if err := g.reached(ctx, s.Index); err != nil {
		return rpc.Settled{}, err
	}
	out := rpc.Settled{Of: make([]rpc.SettledOf, len(s.Of))}
	waits := make([]settling, len(s.Of))
	began := time.Now()
	by := time.Now().Add(loadLimit)
	for i := range s.Of {
		out.Of[i].Partition = s.Of[i].Partition
		waits[i], out.Of[i].Err = g.settle(ctx, by, &s, &s.Of[i], &out.Of[i])
	}
	for i := range waits {
		if waits[i].answer != nil {
			waits[i].await(ctx, &out.Of[i])
		}
	}
	for i := range out.Of { // leases have gone on while it waited
		rpc.Pass(out.Of[i].Extended, time.Since(began))
	}
	return out, nil
}

// settling is one partition's part of a Settle that waits for the coordinator.
type settling struct {
	unit   *unit
	token  lease.Token
	answer chan lease.Answer // nil: it is decided
}

func (g *Groups) settle(ctx context.Context, by time.Time, s *rpc.Settle, of *rpc.SettleOf, out *rpc.SettledOf) (w settling, err error) {
	u, err := g.unit(of.Partition, s.MemberLife)
	if err != nil {
		return w, err
	}
	u.ready(ctx, by) // if it is not, it says so
	b, err := u.post.bounds()
	if err != nil {
		return w, err
	}
	if err := g.leased(); err != nil {
		return w, err
	}
	if err := u.recall(ctx, of.Through); err != nil {
		return w, err
	}
	var failed error
	err = u.with(func(m *lease.Machine, now time.Time) {
		m.Moved(now, b.Start, b.HW)
		m.Hear(now, s.MemberLife, rpc.Hearing{Taker: s.Taker, Call: s.Call, Heard: of.Heard})
		var did lease.Settlement
		if did, failed = m.Settle(now, s.MemberLife, *of); failed != nil {
			return
		}
		if out.Stale, out.Extended = did.Stale, did.Extended; did.Token == 0 {
			return
		}
		w = settling{u, did.Token, make(chan lease.Answer, 1)} // there is one answer
		u.settling[did.Token] = w.answer
	})
	if err != nil {
		return settling{}, err
	}
	return w, failed
}

func (w *settling) await(ctx context.Context, out *rpc.SettledOf) {
	select {
	case a := <-w.answer:
		if a.Unknown {
			out.Stale, out.Extended, out.Err = nil, nil, fault.New(fault.UnknownOutcome, "partition %d got another leader, or the group was moved, before the coordinator answered; say it again", out.Partition.Index)
			return
		}
		out.Stale = append(out.Stale, a.Stale...)
	case <-ctx.Done():
		w.unit.mu.Lock()
		delete(w.unit.settling, w.token)
		w.unit.mu.Unlock()
		out.Stale, out.Extended, out.Err = nil, nil, fault.New(fault.UnknownOutcome, "the coordinator has not answered in time; say it again: %w", context.Cause(ctx))
	}
}

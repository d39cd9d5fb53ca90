package coordinator

import (
	"context"
	"time"

	"tidewire/coordinator/consensus"
	"tidewire/internal/ident"
	"tidewire/internal/sleep"
)

// deadFor is how long a coordinator must be dead before it is taken out for good.
const deadFor = time.Minute

// tidy looks after the coordinators themselves: dead ones leave, where the rest is
// better off without them.
func (r *rule) tidy(ctx context.Context) {
	since := map[ident.NodeID]time.Time{} // dead, as this rule has seen it
	for sleep.For(ctx, tidyEvery) {
		s := r.of.feed.Snapshot()
		dead := func(id ident.NodeID) bool {
			n := s.Nodes[id]
			return id != r.of.cfg.Node.ID && (n == nil || !n.Serves()) && r.of.node.Unreached(id)
		}
		id := expendable(time.Now(), r.of.node.Members(), dead, func(id ident.NodeID) bool { return s.Nodes[id] == nil }, since)
		if id == (ident.NodeID{}) {
			continue
		}
		r.of.cfg.Logger.Warn("a coordinator that has been dead for long is taken out", "node", id.String())
		if err := r.of.node.Remove(ctx, id); err != nil && ctx.Err() == nil {
			r.of.cfg.Logger.Warn("the dead coordinator stays", "node", id.String(), "err", err)
		}
	}
}

// expendable names a member to take out; zero: none. It keeps since, when each one
// was first seen dead. Dead is one whose life is over and whom raft does not reach.
//
// A dead one without a vote costs nothing and goes. A dead voter goes only where that
// makes the majority smaller, which is when another one has come for it: three with
// one dead stay three, because two would bear no more deaths, and it may return. One
// that the cluster has retired goes as soon as those that live are a majority.
func expendable(now time.Time, members []consensus.Member, dead, retired func(ident.NodeID) bool, since map[ident.NodeID]time.Time) ident.NodeID {
	voters, healthy := 0, 0
	for _, m := range members {
		if !dead(m.ID) {
			delete(since, m.ID)
		} else if _, seen := since[m.ID]; !seen {
			since[m.ID] = now
		}
		if m.Voter {
			voters++
			if !dead(m.ID) {
				healthy++
			}
		}
	}
	for _, m := range members {
		if !dead(m.ID) || now.Sub(since[m.ID]) < deadFor {
			continue
		}
		switch {
		case !m.Voter:
			return m.ID
		case healthy < voters/2+1: // raft could not commit it
		case retired(m.ID), majority(voters-1) < majority(voters):
			return m.ID
		}
	}
	return ident.NodeID{}
}

func majority(voters int) int { return voters/2 + 1 }

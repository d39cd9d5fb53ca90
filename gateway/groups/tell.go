package groups

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
	"tidewire/internal/sleep"
)

const (
	// tellPause lets the next call of a member tell a leader what came of the one before: most
	// members call again at once. tellAgain is the pause where a leader did not answer.
	tellPause = 20 * time.Millisecond
	tellAgain = 200 * time.Millisecond
	// tellTime is how long a leader is told: what it may have leased stands until then, or
	// until the leases end.
	tellTime = time.Minute
	mostTold = 64 // at a time
)

// untold is what a leader does not know of the takes of a life, and no take will tell it.
type untold struct {
	hand   *hand
	leader ident.NodeID
	take   rpc.Take
}

// tell tells leaders which answers came, of lives that take nothing here any more and of
// partitions that are no longer theirs, until ctx ends. Leaders hold back what would overtake
// records of which they do not know that.
func (g *Groups) tell(ctx context.Context) {
	for pause := tellPause; ; {
		select {
		case <-g.hands.left:
		case <-ctx.Done():
			return
		}
		goes := sleep.For(ctx, pause)
		pause = tellPause
		if !g.tellAll(context.WithoutCancel(ctx)) {
			nudge(g.hands.left)
			pause = tellAgain
		}
		if !goes {
			return
		}
	}
}

// tellAll tells all that there is to tell, once. False: somebody did not answer.
func (g *Groups) tellAll(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	var telling sync.WaitGroup
	room := make(chan struct{}, mostTold)
	for _, u := range g.hands.untold(g.cfg.Topology.Snapshot(), time.Now()) {
		room <- struct{}{}
		telling.Go(func() {
			defer func() { <-room }()
			b, err := g.broker(u.leader, u.take.Partitions)
			if err != nil {
				return
			}
			if t, err := b.Take(ctx, u.take); err == nil {
				u.hand.says(u.leader, u.take.Call, t)
			}
		})
	}
	telling.Wait()
	return g.hands.tidy()
}

// untold finds what there is to tell. What a leader of before leased is over.
func (all *hands) untold(s *cluster.Snapshot, now time.Time) (out []untold) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for h := range all.restless {
		for leader, l := range h.lines {
			maps.DeleteFunc(l.open, func(p ident.Partition, o open) bool {
				gone := (h.users == 0 || o.stray) && (!leads(s, leader, p) || now.After(h.until))
				if gone && now.After(h.until) {
					all.forgotten = all.takes
				}
				return gone
			})
			var of []ident.Partition
			for p, o := range l.open {
				if h.users == 0 || o.stray {
					of = append(of, p)
				}
			}
			if len(of) == 0 || l.under {
				continue
			}
			slices.SortFunc(of, func(a, b ident.Partition) int { return int(a.Index) - int(b.Index) })
			out = append(out, untold{h, leader, rpc.Take{MemberLife: h.life, Index: l.index, Partitions: of, Taker: all.taker, Call: l.call(), Heard: l.heard(of, all.forgotten)}})
		}
	}
	return out
}

// tidy forgets lives of which everything is told. False: there are others.
func (all *hands) tidy() bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	for h := range all.restless {
		left := false
		for _, l := range h.lines {
			for _, o := range l.open {
				left = left || h.users == 0 || o.stray
			}
		}
		if left {
			continue
		}
		delete(all.restless, h)
		if h.users == 0 {
			delete(all.of, h.life)
		}
	}
	return len(all.restless) == 0
}

func leads(s *cluster.Snapshot, n ident.NodeID, ref ident.Partition) bool {
	t := s.ByID[ref.Topic]
	if t == nil {
		return false
	}
	p, ok := t.Partition(ref.Index)
	return ok && p.Leader == n
}

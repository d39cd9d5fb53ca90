package census

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
	"tidewire/internal/sleep"
)

const (
	// boundsTime bounds the wait for where partitions stand.
	boundsTime = time.Second
	// boundsPause is how long those who did not know are left in peace.
	boundsPause = 50 * time.Millisecond
)

// Bounds of the partitions of some topics, from their leaders. Those whose leader
// does not know within a second are left out: a leader that has just begun learns
// what is committed in a moment, and one that has just died has an heir by then.
func (c *Census) Bounds(ctx context.Context, topics ...*cluster.Topic) map[ident.Partition]rpc.Bounds {
	ctx, cancel := context.WithTimeout(ctx, boundsTime)
	defer cancel()
	out := map[ident.Partition]rpc.Bounds{}
	for open := topics; ; {
		if open = c.bounds(ctx, open, out); len(open) == 0 || !sleep.For(ctx, boundsPause) {
			return out
		}
		latest := c.cfg.Topology.Snapshot()
		for i, t := range open {
			if now := latest.ByID[t.ID]; now != nil && now.Modified > t.Modified {
				open[i] = now
			}
		}
	}
}

// bounds asks for what is still missing, once, and gives the topics of which some
// leader may know more in a moment.
func (c *Census) bounds(ctx context.Context, topics []*cluster.Topic, out map[ident.Partition]rpc.Bounds) (open []*cluster.Topic) {
	var mu sync.Mutex
	unsure := map[ident.TopicID]bool{}
	epochs := map[ident.Partition]ident.Epoch{}
	take := func(ref ident.Partition, b rpc.Bounds, err error) {
		switch {
		case err == nil && b.Epoch >= epochs[ref]:
			out[ref] = b
		case err == nil, !fault.As(err).Lasting: // it has yet to hear that it leads, or something of the moment
			unsure[ref.Topic] = true
		}
	}
	led := map[ident.NodeID][]ident.Partition{}
	for _, t := range topics {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			ref := t.Ref(p.Index)
			if _, known := out[ref]; known {
				continue
			}
			epochs[ref] = p.LeaderEpoch
			switch {
			case p.Leader == c.cfg.Self && c.cfg.Local != nil:
				b, err := c.cfg.Local(ref)
				take(ref, b, err)
			case p.Leader != (ident.NodeID{}) && p.Leader != c.cfg.Self:
				led[p.Leader] = append(led[p.Leader], ref)
			}
		}
	}
	var g errgroup.Group
	g.SetLimit(asked)
	for id, refs := range led {
		if c.cfg.Bounds == nil {
			break
		}
		g.Go(func() error {
			got, err := c.cfg.Bounds(ctx, id, refs)
			mu.Lock()
			defer mu.Unlock()
			for _, ref := range refs {
				if answer, ok := got[ref]; ok {
					take(ref, answer.Bounds, answer.Err)
				} else if err != nil {
					take(ref, rpc.Bounds{}, err)
				}
			}
			return nil
		})
	}
	_ = g.Wait() // none fails
	for _, t := range topics {
		if unsure[t.ID] {
			open = append(open, t)
		}
	}
	return open
}

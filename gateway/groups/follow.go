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
)

// leader is the broker that leads some partitions, and its node.
type leader struct {
	Broker
	node ident.NodeID
}

// each asks the leaders of partitions, all of them at once, and where one does not answer
// for a partition, whoever leads it next, until ctx ends. f asks one broker, and says what
// became of each partition that got no answer. What is left has no answer in the end.
func (g *Groups) each(ctx context.Context, topic *cluster.Topic, of []ident.Index, f func(ctx context.Context, to leader, index uint64, of []ident.Partition) map[ident.Index]error) map[ident.Index]error {
	failed := map[ident.Index]error{}
	for pause := leastPause; ; pause = min(2*pause, mostPause) {
		s := g.cfg.Topology.Snapshot()
		var again []ident.Index
		for i, err := range g.askOnce(ctx, s, topic, of, f) {
			if err == nil {
				delete(failed, i)
				continue
			}
			if !fault.Is(failed[i], fault.UnknownOutcome) { // what may have been done stays so, whatever another says
				failed[i] = err
			}
			if passing(err) {
				again = append(again, i)
			}
		}
		if of = again; len(of) == 0 || !g.await(ctx, s.Index, pause) {
			return failed
		}
	}
}

// passing says that another leader, or the same one later, may answer.
func passing(err error) bool {
	switch fault.KindOf(err) {
	case fault.LeaderUnavailable, fault.Draining, fault.UnknownOutcome, fault.CoordinatorUnavailable:
		return !fault.Lasting(err)
	}
	return false
}

// stays says that an error is of what cannot be read, and does not pass by itself.
func stays(err error) bool { return fault.Is(err, fault.Internal) || fault.Lasting(err) }

// await waits for a snapshot newer than the index, and not for longer than a pause: a
// leader that has yet to begin does not show there. It is false when ctx has ended.
func (g *Groups) await(ctx context.Context, index uint64, pause time.Duration) bool {
	limited, cancel := context.WithTimeout(ctx, pause)
	defer cancel()
	_, _ = g.cfg.Changes.Next(limited, index)
	return ctx.Err() == nil
}

// askOnce asks each leader by one snapshot.
func (g *Groups) askOnce(ctx context.Context, s *cluster.Snapshot, topic *cluster.Topic, of []ident.Index, f func(ctx context.Context, to leader, index uint64, of []ident.Partition) map[ident.Index]error) map[ident.Index]error {
	out := map[ident.Index]error{}
	now := s.ByID[topic.ID]
	var mu sync.Mutex
	var asking sync.WaitGroup
	if now == nil {
		for _, i := range of {
			out[i] = topology.NotFound(topic.Name)
		}
		return out
	}
	// Whoever is asked has to know what was decided here, not all that the index counts:
	// that of others moves with every commit.
	index := max(now.Modified, s.Groups[topic.ID].Modified())
	for node, refs := range group.Leaders(now, of) {
		asking.Go(func() {
			b, err := g.broker(node, refs)
			var failed map[ident.Index]error
			if err == nil {
				failed = f(ctx, leader{b, node}, index, refs)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, ref := range refs {
				if out[ref.Index] = err; err == nil {
					out[ref.Index] = failed[ref.Index]
				}
			}
		})
	}
	asking.Wait()
	return out
}

func (g *Groups) broker(leader ident.NodeID, refs []ident.Partition) (Broker, error) {
	if leader == (ident.NodeID{}) {
		return nil, fault.New(fault.LeaderUnavailable, "partition %d has no leader at the moment", refs[0].Index)
	}
	return g.cfg.Broker(leader)
}

// unanswered is an error for each of some partitions.
func unanswered(refs []ident.Partition, err error) map[ident.Index]error {
	out := make(map[ident.Index]error, len(refs))
	for _, ref := range refs {
		out[ref.Index] = err
	}
	return out
}

package groups

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidewire/gateway/group"
	"tidewire/gateway/topology"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// Broker delivers the records of groups on the partitions that it leads: this node's, or
// another's. A call that did not reach it fails with fault.LeaderUnavailable; a Settle of
// which nobody knows, with fault.UnknownOutcome.
type Broker interface {
	Take(ctx context.Context, t rpc.Take) (rpc.Taken, error)
	Settle(ctx context.Context, s rpc.Settle) (rpc.Settled, error)
	Standings(ctx context.Context, s rpc.StandingsOf) ([]rpc.GroupStanding, error)
	RecordStatus(ctx context.Context, s rpc.RecordStatusOf) ([]rpc.RecordStatus, error)
}

// Places says where partitions begin and end, as their leaders do.
type Places interface {
	Bounds(ctx context.Context, p ident.Partition) (rpc.Bounds, error)
	OffsetAt(ctx context.Context, p ident.Partition, ms int64) (ident.Offset, error)
}

// Changes is the cluster's change feed.
type Changes interface {
	Next(ctx context.Context, after uint64) (*cluster.Snapshot, error)
}

// Pulse takes signs of life in.
type Pulse interface {
	Hear(life cluster.MemberLife)
	// Ask says, by the coordinator, whether a life still counts.
	Ask(ctx context.Context, life cluster.MemberLife) error
}

// Config of Groups. All of it is required, but for the Registerer.
type Config struct {
	Self     ident.NodeID
	Topology topology.Present
	Changes  Changes
	// Broker finds the broker of a node.
	Broker func(ident.NodeID) (Broker, error)
	Places Places
	// Propose asks the coordinator for a change. When it returns the snapshot has it.
	Propose func(ctx context.Context, change cluster.Change) (cluster.Answer, error)
	Pulse   Pulse

	Registerer prometheus.Registerer // nil: nothing is counted
}

const (
	// callTime bounds a call that follows a leader.
	callTime = 5 * time.Second
	// lookTime bounds one that only tells how things stand: what does not answer is left out.
	lookTime = time.Second
	// lagTime is how long a call waits for the snapshot that it speaks of.
	lagTime = 2 * time.Second
	// leastPause and mostPause bound the wait for a leader that did not answer.
	leastPause = 20 * time.Millisecond
	mostPause  = 200 * time.Millisecond
)

// Groups serves consumer groups. It is safe for concurrent use.
type Groups struct {
	cfg     Config
	watches watches
	hands   hands
	crowd   crowd
	metrics metrics
}

// New makes it. It starts nothing; changes are noticed only while Run does.
func New(cfg Config) *Groups {
	return &Groups{cfg: cfg, watches: newWatches(), hands: newHands(), metrics: newMetrics(cfg.Registerer)}
}

// Run follows the change feed, and tells leaders what members' calls do not tell, until ctx ends.
func (g *Groups) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var telling sync.WaitGroup
	telling.Go(func() { g.tell(ctx) })
	defer telling.Wait()
	defer cancel()
	for index := uint64(0); ; {
		s, err := g.cfg.Changes.Next(ctx, index)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		index = s.Index
		g.watches.changed(s)
	}
}

// Find finds a group.
func (g *Groups) Find(ctx context.Context, topic, name string) (v group.View, err error) {
	err = topology.Find(ctx, g.cfg.Topology, func(s *cluster.Snapshot) (err error) {
		v, err = group.Find(s, topic, name)
		return err
	})
	return v, err
}

// Caller is who speaks as a member, and in which of its lives.
type Caller struct {
	Topic, Group, Member string
	Epoch                ident.MemberEpoch
}

// live finds a caller. A life that is newer than the snapshot is waited for: it began at
// another gateway.
func (g *Groups) live(ctx context.Context, c Caller) (group.View, error) {
	s := g.cfg.Topology.Snapshot()
	if s.Index < uint64(c.Epoch) {
		limited, cancel := context.WithTimeout(ctx, lagTime)
		defer cancel()
		for s.Index < uint64(c.Epoch) {
			next, err := g.cfg.Changes.Next(limited, s.Index)
			if err != nil {
				break
			}
			s = next
		}
	}
	v, err := group.Find(s, c.Topic, c.Group)
	if err != nil {
		return v, err
	}
	if _, known := v.Group.Member(c.Member); !known && s.Index < uint64(c.Epoch) {
		return v, fault.New(fault.MemberNotFound, "nobody is known to have joined group %q in epoch %d; join it first, and send the epoch that the join gave", v.Group.Name, c.Epoch).With("field", "epoch")
	}
	_, err = v.Life(c.Member, c.Epoch)
	return v, err
}

// decided is a change's answer with a group in it.
func (g *Groups) decided(ctx context.Context, topic, name string, change cluster.Change) (cluster.Answer, error) {
	a, err := g.cfg.Propose(ctx, change)
	if err == nil && a.Group == nil { // an earlier try of this call made it, and it has gone since
		err = group.NotFound(topic, name)
	}
	return a, err
}

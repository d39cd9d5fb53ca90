package router

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"tidewire/gateway/topology"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// Local is the broker of this node.
type Local interface {
	Append(req rpc.Append, done func(rpc.Appended))
	Read(ctx context.Context, r rpc.Read) (rpc.ReadResult, error)
	Bounds(p ident.Partition) (rpc.Bounds, error)
	OffsetAt(ctx context.Context, p ident.Partition, ms int64) (ident.Offset, error)
	EpochEnd(p ident.Partition, e ident.Epoch) (ident.Offset, error)
	// Wait gives a channel that closes once the high watermark is above after, or
	// the replica is no longer served: that it has not heard its leader for too
	// long included.
	Wait(p ident.Partition, after ident.Offset) (<-chan struct{}, error)
	Groups
}

// Peer is the broker of another node. A call that did not reach it fails with
// fault.LeaderUnavailable; one of which nobody knows, with fault.UnknownOutcome.
type Peer interface {
	// Append calls done exactly once, perhaps before it returns, and does not wait.
	Append(req rpc.Append, done func(rpc.Appended))
	// Read waits that long for records where there are none.
	Read(ctx context.Context, r rpc.Read, wait time.Duration) (rpc.ReadResult, error)
	// Bounds waits that long for a high watermark above after.
	Bounds(ctx context.Context, p ident.Partition, after ident.Offset, wait time.Duration) (rpc.Bounds, error)
	OffsetAt(ctx context.Context, p ident.Partition, ms int64) (ident.Offset, error)
	EpochEnd(ctx context.Context, p ident.Partition, e ident.Epoch) (ident.Offset, error)
	Groups
}

// Changes is the cluster's change feed.
type Changes interface {
	Next(ctx context.Context, after uint64) (*cluster.Snapshot, error)
}

// Config of a Router.
type Config struct {
	Self     ident.NodeID    // required
	Topology topology.Source // required
	Changes  Changes         // nil: a leader that moves is noticed by its errors
	Local    Local           // nil: this node has no broker
	// Peer finds another node's broker by what the snapshot says of it; nil: there
	// is none.
	Peer func(ident.NodeID) (Peer, error)
}

// Router is the brokers of a cluster as one.
type Router struct {
	cfg Config

	mu       sync.Mutex
	known    map[ident.Partition]*known
	watchers map[watched]*watcher
	waiting  map[ident.NodeID]int // calls that wait, by leader
	fresh    []*watcher           // to be started by Run
	wake     chan struct{}        // room for one: fresh is not empty
	stopped  bool
}

// New makes a Router. It starts nothing; watchers run only while Run does.
func New(cfg Config) *Router {
	return &Router{cfg: cfg, known: map[ident.Partition]*known{}, watchers: map[watched]*watcher{}, waiting: map[ident.NodeID]int{}, wake: make(chan struct{}, 1)}
}

// place is where a partition is, by one snapshot.
type place struct {
	leader  ident.NodeID // zero: nobody leads
	epoch   ident.Epoch
	mine    bool // this node leads
	replica bool // this node has a replica in sync, or leads
}

func (r *Router) find(p ident.Partition) (place, error) {
	t := r.cfg.Topology.Snapshot().ByID[p.Topic]
	if t == nil {
		return place{}, fault.New(fault.LeaderUnavailable, "partition %d is of a topic that this node does not know", p.Index)
	}
	part, ok := t.Partition(p.Index)
	if !ok {
		return place{}, fault.New(fault.PartitionNotFound, "topic %q has no partition %d", t.Name, p.Index)
	}
	at := place{leader: part.Leader, epoch: part.LeaderEpoch}
	if r.cfg.Local != nil {
		at.mine = part.Leader == r.cfg.Self
		at.replica = at.mine || slices.Contains(part.ISR, r.cfg.Self) && slices.Contains(part.Replicas, r.cfg.Self)
	}
	return at, nil
}

// peer is the leader where that is another node.
func (r *Router) peer(p ident.Partition, at place) (Peer, error) {
	if at.leader == (ident.NodeID{}) || r.cfg.Peer == nil {
		return nil, fault.New(fault.LeaderUnavailable, "partition %d has no leader at the moment", p.Index)
	}
	if at.leader == r.cfg.Self {
		return nil, fault.New(fault.LeaderUnavailable, "this node is to lead partition %d and has no broker", p.Index)
	}
	return r.cfg.Peer(at.leader)
}

// Append hands a batch to the partition's leader.
func (r *Router) Append(req rpc.Append, done func(rpc.Appended)) {
	at, err := r.find(req.Partition)
	if err == nil && at.mine {
		req.Epoch = at.epoch
		r.cfg.Local.Append(req, done)
		return
	}
	var peer Peer
	if err == nil {
		peer, err = r.peer(req.Partition, at)
	}
	if err != nil {
		done(rpc.Appended{Err: err})
		return
	}
	req.Epoch = at.epoch
	peer.Append(req, done)
}

// Run starts watchers, ends those whose leader has moved and forgets what they
// found, until ctx ends.
func (r *Router) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.start(ctx, g) })
	g.Go(func() error { return r.follow(ctx) })
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// follow ends watchers of leaders that are none any more.
func (r *Router) follow(ctx context.Context) error {
	if r.cfg.Changes == nil {
		return nil
	}
	for index := uint64(0); ; {
		s, err := r.cfg.Changes.Next(ctx, index)
		if err != nil {
			return err
		}
		index = s.Index
		r.mu.Lock()
		for _, w := range r.watchers {
			if at, err := r.find(w.ref); err != nil || at.leader != w.at.leader || at.epoch != w.at.epoch {
				w.endLocked()
			}
		}
		r.mu.Unlock()
	}
}

package main

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"tidewire/broker/link"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/inbox"
	"tidewire/internal/membership"
	"tidewire/internal/registration"
	"tidewire/internal/rpc"
)

// addresses is where other nodes are: where gossip has heard of a node, as gossip has,
// else as the cluster has it. A node that came back elsewhere is found before it has
// registered, which may need those that came back elsewhere.
type addresses struct {
	director     atomic.Pointer[director]
	membership   atomic.Pointer[membership.Membership]
	registration atomic.Pointer[registration.Registration]
}

// known is the newest snapshot; nil: none yet.
func (a *addresses) known() *cluster.Snapshot {
	if d := a.director.Load(); d != nil {
		return (*d).Snapshot()
	}
	return nil
}

// of is where a node's calls go; empty: nobody knows.
func (a *addresses) of(id ident.NodeID) string {
	if m := a.membership.Load(); m != nil {
		if heard, ok := m.Find(id); ok && heard.Addresses.RPC != "" {
			return heard.Addresses.RPC
		}
	}
	if s := a.known(); s != nil {
		if n := s.Nodes[id]; n != nil {
			return n.Addresses.RPC
		}
	}
	return ""
}

// network opens replication streams, and appends to what other brokers lead.
type network struct{ *rpc.Peers }

func (n network) Append(to ident.NodeID, req rpc.Append, done func(rpc.Appended)) {
	p, err := n.Node(to)
	if err != nil {
		done(rpc.Appended{Err: err})
		return
	}
	p.Append(req, done)
}

func (n network) Follow(ctx context.Context, f rpc.Follow) (link.FollowerStream, error) {
	p, err := n.Node(f.Leader.Node)
	if err != nil {
		return nil, err
	}
	return p.Follow(ctx, f)
}

// backend answers other nodes that call this one's broker.
type backend struct{ *node }

func (b backend) refusal() error {
	if b.broker == nil {
		return fault.New(fault.LeaderUnavailable, "%w", errNoBroker)
	}
	return nil
}

// Append is of rpc.BrokerBackend, like all that follows.
func (b backend) Append(req rpc.Append, done func(rpc.Appended)) {
	if err := b.refusal(); err != nil {
		done(rpc.Appended{Err: err})
		return
	}
	b.broker.Append(req, done)
}

func (b backend) Read(ctx context.Context, r rpc.Read) (rpc.ReadResult, error) {
	if err := b.refusal(); err != nil {
		return rpc.ReadResult{}, err
	}
	return b.broker.Read(ctx, r)
}

func (b backend) Bounds(p ident.Partition) (rpc.Bounds, error) {
	if err := b.refusal(); err != nil {
		return rpc.Bounds{}, err
	}
	return b.broker.Bounds(p)
}

func (b backend) OffsetAt(ctx context.Context, p ident.Partition, ms int64) (ident.Offset, error) {
	if err := b.refusal(); err != nil {
		return 0, err
	}
	return b.broker.OffsetAt(ctx, p, ms)
}

func (b backend) EpochEnd(p ident.Partition, e ident.Epoch) (ident.Offset, error) {
	if err := b.refusal(); err != nil {
		return 0, err
	}
	return b.broker.EpochEnd(p, e)
}

func (b backend) Wait(p ident.Partition, after ident.Offset) (<-chan struct{}, error) {
	if err := b.refusal(); err != nil {
		return nil, err
	}
	return b.broker.Wait(p, after)
}

func (b backend) ServeFollow(ctx context.Context, f rpc.Follow, s rpc.FollowerStream) error {
	if err := b.refusal(); err != nil {
		return err
	}
	return b.broker.ServeFollow(ctx, f, s)
}

func (b backend) Take(ctx context.Context, t rpc.Take) (rpc.Taken, error) {
	if err := b.refusal(); err != nil {
		return rpc.Taken{}, err
	}
	return b.broker.Take(ctx, t)
}

func (b backend) Settle(ctx context.Context, s rpc.Settle) (rpc.Settled, error) {
	if err := b.refusal(); err != nil {
		return rpc.Settled{}, err
	}
	return b.broker.Settle(ctx, s)
}

func (b backend) Standings(ctx context.Context, s rpc.StandingsOf) ([]rpc.GroupStanding, error) {
	if err := b.refusal(); err != nil {
		return nil, err
	}
	return b.broker.Standings(ctx, s)
}

func (b backend) RecordStatus(ctx context.Context, s rpc.RecordStatusOf) ([]rpc.RecordStatus, error) {
	if err := b.refusal(); err != nil {
		return nil, err
	}
	return b.broker.RecordStatus(ctx, s)
}

func (b backend) KeepReply(ctx context.Context, to string, r *inbox.Reply, gone bool) (rpc.Handed, error) {
	if err := b.refusal(); err != nil {
		return 0, err
	}
	return b.broker.KeepReply(ctx, to, r, gone)
}

func (b backend) KeptReply(ctx context.Context, to string, until int64, wait time.Duration) (rpc.Collected, error) {
	if err := b.refusal(); err != nil {
		return rpc.Collected{}, err
	}
	return b.broker.KeptReply(ctx, to, until, wait)
}

func (b backend) Original(ctx context.Context, s rpc.Sought) (rpc.Original, error) {
	if err := b.refusal(); err != nil {
		return rpc.Original{}, err
	}
	return b.broker.Original(ctx, s)
}

// Probe says which life this node is in, or asks to be in: the coordinator may know
// sooner than the node that it counts.
func (b backend) Probe(context.Context) (cluster.Life, error) {
	return cmp.Or(b.registration.Begun(), b.life()), nil
}

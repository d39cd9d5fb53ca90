package rpc

import (
	"context"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// Coordinators are the calls of coordinators by the node that is asked: as a node
// without that role asks them, and as they ask one another.
type Coordinators struct{ Peers *Peers }

func (c Coordinators) node(id ident.NodeID) (*Peer, error) {
	r, err := c.Peers.Node(id)
	if err != nil {
		f := *fault.As(err)
		f.Kind = fault.CoordinatorUnavailable
		return nil, untouched(&f)
	}
	return r, nil
}

// Propose is Peer.Propose.
func (c Coordinators) Propose(ctx context.Context, to ident.NodeID, request cluster.RequestID, change cluster.Change) (cluster.Answer, error) {
	r, err := c.node(to)
	if err != nil {
		return cluster.Answer{}, err
	}
	return r.Propose(ctx, request, change)
}

// Renew is Peer.Renew.
func (c Coordinators) Renew(ctx context.Context, to ident.NodeID, q cluster.Renewal) (cluster.Lease, error) {
	r, err := c.node(to)
	if err != nil {
		return cluster.Lease{}, err
	}
	return r.Renew(ctx, q)
}

// Report is Peer.Report.
func (c Coordinators) Report(ctx context.Context, to ident.NodeID, s cluster.Suspicion) error {
	r, err := c.node(to)
	if err != nil {
		return err
	}
	return r.Report(ctx, s)
}

// Join is Peer.Join.
func (c Coordinators) Join(ctx context.Context, to ident.NodeID, j cluster.Join) (cluster.Joined, error) {
	r, err := c.node(to)
	if err != nil {
		return cluster.Joined{}, err
	}
	return r.Join(ctx, j)
}

// Touch is Peer.Touch.
func (c Coordinators) Touch(ctx context.Context, to ident.NodeID, signs []cluster.SignOfLife) (cluster.Lost, error) {
	r, err := c.node(to)
	if err != nil {
		return cluster.Lost{}, err
	}
	return r.Touch(ctx, signs)
}

// Progress is Peer.Progress.
func (c Coordinators) Progress(ctx context.Context, to ident.NodeID, of cluster.ProgressOf) ([]cluster.GroupProgress, error) {
	r, err := c.node(to)
	if err != nil {
		return nil, err
	}
	return r.Progress(ctx, of)
}

// Decided is Peer.Decided.
func (c Coordinators) Decided(ctx context.Context, to ident.NodeID) (uint64, error) {
	r, err := c.node(to)
	if err != nil {
		return 0, err
	}
	return r.Decided(ctx)
}

// Watch is Peer.Watch.
func (c Coordinators) Watch(ctx context.Context, to ident.NodeID, from uint64, each func(cluster.Message) error) error {
	r, err := c.node(to)
	if err != nil {
		return err
	}
	return r.Watch(ctx, from, each)
}

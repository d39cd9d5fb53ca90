package router

import (
	"context"

	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// Serve says whether something is so of every in-sync replica of a partition that gives
// readers anything. One that cannot be asked is passed over: it is silent, or serves nobody.
func (r *Router) Serve(ctx context.Context, p ident.Partition, so func(rpc.Bounds) bool) bool {
	t := r.cfg.Topology.Snapshot().ByID[p.Topic]
	if t == nil {
		return true
	}
	part, ok := t.Partition(p.Index)
	if !ok {
		return true
	}
	for _, n := range part.ISR {
		if b, err := r.boundsAt(ctx, p, n); err == nil && !so(b) {
			return false
		}
	}
	return true
}

// boundsAt is what one node says of its replica.
func (r *Router) boundsAt(ctx context.Context, p ident.Partition, n ident.NodeID) (rpc.Bounds, error) {
	if n == r.cfg.Self && r.cfg.Local != nil {
		return r.cfg.Local.Bounds(p)
	}
	peer, err := r.peer(p, place{leader: n})
	if err != nil {
		return rpc.Bounds{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	return peer.Bounds(ctx, p, -1, 0)
}

package router

import (
	"context"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// Groups delivers the records of consumer groups, on the partitions that a broker leads.
type Groups interface {
	// Take waits by itself for what there is to take. Limit 0 leases nothing, so it may be
	// given up at any time.
	Take(ctx context.Context, t rpc.Take) (rpc.Taken, error)
	Settle(ctx context.Context, s rpc.Settle) (rpc.Settled, error)
	Standings(ctx context.Context, s rpc.StandingsOf) ([]rpc.GroupStanding, error)
	RecordStatus(ctx context.Context, s rpc.RecordStatusOf) ([]rpc.RecordStatus, error)
}

// Groups finds a node's broker, for what it does for groups: this node's own, or
// another's.
func (r *Router) Groups(id ident.NodeID) (Groups, error) {
	switch {
	case id == r.cfg.Self && r.cfg.Local != nil:
		return r.cfg.Local, nil
	case id == r.cfg.Self:
		return nil, fault.New(fault.LeaderUnavailable, "this node is to lead partitions and has no broker")
	case r.cfg.Peer == nil:
		return nil, fault.New(fault.LeaderUnavailable, "this node has no way to others")
	}
	return r.cfg.Peer(id)
}

package coordinator

import (
	"context"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// Peers reaches the other coordinators. Each call goes to one node, which answers
// it itself or refuses: fault.CoordinatorUnavailable with cluster.FieldLeader where
// it does not lead. A call may be made concurrently and ends with its ctx.
//
// At the other end are this package's ServePropose, ServeRenew, ServeReport, ServeJoin,
// ServeTouch, ServeProgress and ServeDecided.
type Peers interface {
	Propose(ctx context.Context, to ident.NodeID, request cluster.RequestID, change cluster.Change) (cluster.Answer, error)
	Renew(ctx context.Context, to ident.NodeID, r cluster.Renewal) (cluster.Lease, error)
	Report(ctx context.Context, to ident.NodeID, s cluster.Suspicion) error
	Join(ctx context.Context, to ident.NodeID, j cluster.Join) (cluster.Joined, error)
	Touch(ctx context.Context, to ident.NodeID, signs []cluster.SignOfLife) (cluster.Lost, error)
	Progress(ctx context.Context, to ident.NodeID, of cluster.ProgressOf) ([]cluster.GroupProgress, error)
	Decided(ctx context.Context, to ident.NodeID) (uint64, error)
}

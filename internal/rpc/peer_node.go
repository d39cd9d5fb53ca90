package rpc

import (
	"context"

	"tidewire/internal/fault"
	"tidewire/internal/rpc/tidewirepb"
)

// Figures asks what a node says of itself, as JSON.
func (r *Peer) Figures(ctx context.Context) ([]byte, error) {
	a, err := call(ctx, r, fault.LeaderUnavailable, asks, r.services.Figures, &tidewirepb.FiguresRequest{})
	return a.GetJson(), err
}

// Connections asks for a node's client connections, as JSON; of one principal, or of all.
func (r *Peer) Connections(ctx context.Context, principal string) ([]byte, error) {
	a, err := call(ctx, r, fault.LeaderUnavailable, asks, r.services.Connections, &tidewirepb.ConnectionsRequest{Principal: principal})
	return a.GetJson(), err
}

// Disconnect closes a client connection of a node; false: it has none of that name.
func (r *Peer) Disconnect(ctx context.Context, connection string) (bool, error) {
	a, err := call(ctx, r, fault.LeaderUnavailable, changes, r.services.Disconnect, &tidewirepb.DisconnectRequest{Connection: connection})
	return a.GetFound(), err
}

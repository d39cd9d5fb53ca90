package rpc

import (
	"context"

	"tidewire/internal/fault"
	"tidewire/internal/rpc/tidewirepb"
)

func (n nodeService) backend() (NodeBackend, error) {
	if b := n.s.node.Load(); b != nil {
		return *b, nil
	}
	return nil, absent(fault.LeaderUnavailable, "node")
}

func (n nodeService) Figures(ctx context.Context, _ *tidewirepb.FiguresRequest) (*tidewirepb.FiguresResponse, error) {
	b, err := n.backend()
	if err != nil {
		return nil, err
	}
	json, err := b.Figures(ctx)
	return &tidewirepb.FiguresResponse{Json: json}, statusOf(err)
}

func (n nodeService) Connections(ctx context.Context, r *tidewirepb.ConnectionsRequest) (*tidewirepb.ConnectionsResponse, error) {
	b, err := n.backend()
	if err != nil {
		return nil, err
	}
	json, err := b.Connections(ctx, r.Principal)
	return &tidewirepb.ConnectionsResponse{Json: json}, statusOf(err)
}

func (n nodeService) Disconnect(ctx context.Context, r *tidewirepb.DisconnectRequest) (*tidewirepb.DisconnectResponse, error) {
	b, err := n.backend()
	if err != nil {
		return nil, err
	}
	found, err := b.Disconnect(ctx, r.Connection)
	return &tidewirepb.DisconnectResponse{Found: found}, statusOf(err)
}

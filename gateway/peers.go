package gateway

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"

	"tidewire/gateway/ask"
	"tidewire/gateway/census"
	"tidewire/gateway/router"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// Peer is another node: its broker, what it says of itself, and the requests asked there.
type Peer interface {
	router.Peer
	census.Peer
	ask.Peer
	ask.Mail
}

// boundsAsked is how many partitions of a node are asked about at once.
const boundsAsked = 16

// routed gives the router other nodes' brokers.
func routed(peer func(ident.NodeID) (Peer, error)) func(ident.NodeID) (router.Peer, error) {
	if peer == nil {
		return nil
	}
	return func(id ident.NodeID) (router.Peer, error) { return peer(id) }
}

// counted gives the census other nodes.
func counted(peer func(ident.NodeID) (Peer, error)) func(ident.NodeID) (census.Peer, error) {
	if peer == nil {
		return nil
	}
	return func(id ident.NodeID) (census.Peer, error) { return peer(id) }
}

// bounds asks a node for the bounds of partitions that it leads.
func bounds(peer func(ident.NodeID) (Peer, error)) func(context.Context, ident.NodeID, []ident.Partition) (map[ident.Partition]rpc.BoundsAnswer, error) {
	if peer == nil {
		return nil
	}
	return func(ctx context.Context, id ident.NodeID, of []ident.Partition) (map[ident.Partition]rpc.BoundsAnswer, error) {
		p, err := peer(id)
		if err != nil {
			return nil, err
		}
		var mu sync.Mutex
		out := make(map[ident.Partition]rpc.BoundsAnswer, len(of))
		var g errgroup.Group
		g.SetLimit(boundsAsked)
		for _, ref := range of {
			g.Go(func() error {
				b, err := p.Bounds(ctx, ref, -1, 0)
				mu.Lock()
				defer mu.Unlock()
				out[ref] = rpc.BoundsAnswer{Bounds: b, Err: err}
				return nil
			})
		}
		return out, g.Wait()
	}
}

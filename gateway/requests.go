package gateway

import (
	"context"
	"time"

	"tidewire/gateway/ask"
	"tidewire/gateway/census"
	"tidewire/gateway/connection"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/inbox"
	"tidewire/internal/rpc"
)

// lastReplies is how long the requests that wait when a node drains have for their replies.
const lastReplies = 2 * time.Second

// Backend answers other nodes that ask about this one, or about requests that were asked
// here: rpc.NodeBackend.
type Backend struct {
	*census.Backend
	ask *ask.Ask
}

// BareBackend is that of a node that has no gateway.
func BareBackend(about func() census.Figures) *Backend {
	return &Backend{Backend: &census.Backend{Own: about, Clients: connection.New()}}
}

var errNoGateway = fault.New(fault.LeaderUnavailable, "this node has no gateway")

// HandReply takes the reply to a request of this gateway.
func (b *Backend) HandReply(ctx context.Context, to string, r *inbox.Reply) (rpc.Handed, error) {
	if b.ask == nil {
		return 0, errNoGateway
	}
	return b.ask.ServeReply(ctx, to, r)
}

// CollectReply waits for the reply to a request of this gateway.
func (b *Backend) CollectReply(ctx context.Context, to string, wait time.Duration) (rpc.Collected, error) {
	if b.ask == nil {
		return rpc.Collected{}, errNoGateway
	}
	return b.ask.ServeCollect(ctx, to, wait)
}

// askable gives request-reply other gateways.
func askable(peer func(ident.NodeID) (Peer, error)) func(ident.NodeID) (ask.Peer, error) {
	if peer == nil {
		return nil
	}
	return func(id ident.NodeID) (ask.Peer, error) { return peer(id) }
}

// mail gives request-reply the mailboxes of brokers.
func mail(cfg Config) func(ident.NodeID) (ask.Mail, error) {
	return func(id ident.NodeID) (ask.Mail, error) {
		switch {
		case id == cfg.Node && cfg.Broker != nil:
			return cfg.Broker, nil
		case id == cfg.Node || cfg.Peer == nil:
			return nil, fault.New(fault.LeaderUnavailable, "node %s cannot be asked", id)
		}
		return cfg.Peer(id)
	}
}

package ask

import (
	"context"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/inbox"
	"tidewire/internal/rpc"
)

const (
	// mostRelays bounds the gateways that are asked to pass a reply on, and relayTime each.
	mostRelays = 3
	relayTime  = 500 * time.Millisecond
	// lookTime bounds the question whether a gateway has a reply.
	lookTime = 500 * time.Millisecond
)

// errand is a reply on its way.
type errand struct {
	*Ask
	to    *inbox.Address
	reply *inbox.Reply
	// doubt says that a call went out of which nobody knows what it did: that somebody has a
	// reply may be this one.
	doubt bool
}

// once tries every place where the reply may find its requester.
func (e *errand) once(ctx context.Context, s snapshot) (way string, handed rpc.Handed, err error) {
	said := false // by the gateway itself, that it is gone
	away := !e.lives(s, e.to)
	switch {
	case away:
	case over(s, e.to) && e.to.Node != e.cfg.Self:
		if e.answered(ctx) {
			return forwarded, rpc.HandedNobody, nil
		}
		away = true
	default:
		if way = forwarded; e.to.Node == e.cfg.Self {
			way = local
		}
		handed, err = e.forward(ctx)
		said = err == nil && handed == rpc.HandedWrongly
	}
	switch {
	case (away || said) && !e.to.Lasting:
		return "", 0, gone()
	case way == local && unreached(err):
		return way, handed, err // this node hears by itself when the leader decides
	case away, said, e.to.Lasting && unreached(err):
		handed, err = e.keep(ctx, e.cfg.Topology.Snapshot(), e.to, e.reply, said || away && e.to.Node == e.cfg.Self)
		e.note(err)
		return kept, handed, err
	}
	return way, handed, err
}

// answered says that a gateway in another life has had the reply to a request in an earlier
// one. It decides about none any more.
func (e *errand) answered(ctx context.Context) bool {
	p, err := e.cfg.Peer(e.to.Node)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	got, err := p.CollectReply(ctx, e.to.String(), 0)
	return err == nil && (got.Reply != nil || got.Fate == rpc.Over)
}

// forward brings the reply to the gateway that was asked: by itself, or by another gateway
// where only the link between the two is cut.
func (e *errand) forward(ctx context.Context) (handed rpc.Handed, err error) {
	if e.to.Node == e.cfg.Self {
		handed, err = e.receive(ctx, e.to, e.reply)
		e.note(err)
		return handed, err
	}
	handed, err = e.hand(ctx, e.to.Node, handTime, e.to, e.reply)
	e.note(err)
	if !unreached(err) {
		return handed, err
	}
	s := e.cfg.Topology.Snapshot()
	for _, id := range e.relays(s) {
		if over(s, e.to) {
			break // nobody else would reach it
		}
		if handed, other := e.hand(ctx, id, relayTime, e.to, e.reply); !unreached(other) {
			return handed, other
		} else {
			e.note(other)
		}
	}
	return handed, err
}

// relays are gateways that may pass a reply on.
func (e *errand) relays(s snapshot) (ids []ident.NodeID) {
	for id, n := range s.Nodes {
		if len(ids) < mostRelays && id != e.cfg.Self && id != e.to.Node && n.Serves() && n.Gateway() {
			ids = append(ids, id)
		}
	}
	return ids
}

func (e *errand) note(err error) { e.doubt = e.doubt || fault.Is(err, fault.UnknownOutcome) }

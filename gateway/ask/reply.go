package ask

import (
	"context"
	"time"

	"tidewire/gateway/access"
	"tidewire/gateway/topology"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/inbox"
	"tidewire/internal/rpc"
)

const (
	// replyTime bounds how long a reply looks for its requester, and handTime one call on
	// its way there: a node that is paused does not answer, and there is another place.
	replyTime = 5 * time.Second
	handTime  = 2 * time.Second
)

type snapshot = *cluster.Snapshot

// Dest is where a reply goes.
type Dest struct {
	Topic   *cluster.Topic // of the request
	address inbox.Address
}

// Find reads an inbox, for a caller who has the right to reply there. It waits where the
// topic or the node of the inbox may be too young for this one to have heard of it.
func (a *Ask) Find(ctx context.Context, caller *access.Grant, to string) (d Dest, err error) {
	defer func() {
		if err != nil {
			a.metrics.returned(err)
		}
	}()
	if d.address, err = inbox.Parse(to); err != nil {
		return d, gone()
	}
	err = topology.Find(ctx, a.cfg.Topology, func(s snapshot) error {
		if d.Topic = s.ByID[d.address.Topic]; d.Topic == nil {
			return gone()
		}
		return nil
	})
	if err != nil {
		return d, err
	}
	if node := d.address.Node; node != a.cfg.Self && a.cfg.Topology.Snapshot().Nodes[node] == nil {
		a.cfg.Topology.CatchUp(ctx)
	}
	return d, caller.May(access.Reply, d.Topic.Name)
}

func gone() error {
	return fault.New(fault.RequesterGone, "nobody waits for a reply at this inbox: the requester has left, its time is up, or it has a reply")
}

// Here says that a reply finds its requester, or nobody, without waiting for anything.
func (a *Ask) Here(d Dest) bool {
	return d.address.Node == a.cfg.Self && (!d.address.Lasting || a.mine(&d.address))
}

// Reply brings a reply to its requester, or to where a repeat of the request collects it.
// The reply is only lent.
func (a *Ask) Reply(ctx context.Context, d Dest, r *inbox.Reply) error {
	way, err := a.reply(ctx, d, r)
	if err != nil {
		a.metrics.returned(err)
		return err
	}
	a.metrics.replies.WithLabelValues(way).Inc()
	return nil
}

// The ways that a reply takes.
const (
	local     = "local"
	forwarded = "forwarded"
	kept      = "kept"
)

func (a *Ask) reply(ctx context.Context, d Dest, r *inbox.Reply) (way string, err error) {
	if n, most := r.Bytes(), d.Topic.Settings.MaxMessageBytes; n > most {
		return "", TooLarge(d, n)
	}
	to := &d.address
	if a.mine(to) && !a.doubts(to) {
		if err := a.take(to.Token, r); !fault.Is(err, fault.RequesterGone) || a.mine(to) {
			return local, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, replyTime)
	defer cancel()
	doubt := false
	for pause := leastPause; ; pause = min(2*pause, mostPause) {
		s := a.cfg.Topology.Snapshot()
		away := !a.lives(s, to)
		var handed rpc.Handed
		if !away {
			if way = forwarded; to.Node == a.cfg.Self {
				way = local
			}
			handed, err = a.forward(ctx, to, r)
			away = err == nil && handed == rpc.HandedWrongly
		}
		if away && !to.Lasting {
			return "", gone()
		}
		if to.Lasting && (away || unreached(err)) {
			way = kept
			handed, err = a.keep(ctx, s, to, r)
		}
		switch {
		case err == nil && handed == rpc.HandedOver:
			return way, nil
		case err == nil && doubt:
			return "", unsureReply() // that there was a reply may be this one
		case err == nil:
			return "", gone()
		case !unreached(err):
			return "", err
		}
		doubt = doubt || fault.Is(err, fault.UnknownOutcome)
		if !a.await(ctx, s.Index, pause) {
			if doubt {
				return "", unsureReply()
			}
			return "", err
		}
	}
}

func unsureReply() error {
	return fault.New(fault.UnknownOutcome, "the reply may have come to its requester, or not; to say it again does no harm")
}

// TooLarge is the refusal of a reply of n bytes or more.
func TooLarge(d Dest, n int) error {
	most := d.Topic.Settings.MaxMessageBytes
	return fault.New(fault.MessageTooLarge, "a reply takes at most %d bytes of headers and value together, as a record of topic %q does (max_message_bytes); this one has %d", most, d.Topic.Name, n).
		With("max_message_bytes", most)
}

// take gives a reply to who waits for it here.
func (a *Ask) take(token inbox.Token, r *inbox.Reply) error {
	switch a.put(token, r) {
	case inbox.Gone:
		return gone()
	case inbox.Full:
		return fault.New(fault.Limit, "the node keeps as many replies for repeated requests as it may; reply again in a moment").With("limit", "max_kept_replies").Overload()
	}
	return nil
}

func (a *Ask) put(token inbox.Token, r *inbox.Reply) inbox.Put {
	a.mu.Lock()
	callers, v := a.box.Put(token, r)
	a.mu.Unlock()
	for _, c := range callers {
		c.Of.(*Call).answered(r, nil)
	}
	return v
}

// forward hands a reply to the gateway that was asked.
func (a *Ask) forward(ctx context.Context, to *inbox.Address, r *inbox.Reply) (rpc.Handed, error) {
	if to.Node == a.cfg.Self {
		return a.receive(ctx, to, r)
	}
	p, err := a.cfg.Peer(to.Node)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, handTime)
	defer cancel()
	return p.HandReply(ctx, to.String(), r)
}

// keep gives a reply to the leader of the request's partition.
func (a *Ask) keep(ctx context.Context, s snapshot, to *inbox.Address, r *inbox.Reply) (rpc.Handed, error) {
	m, err := a.mail(s, to.Ref())
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, handTime)
	defer cancel()
	return m.KeepReply(ctx, to.String(), r)
}

// mail is the leader of a partition.
func (a *Ask) mail(s snapshot, ref ident.Partition) (Mail, error) {
	t := s.ByID[ref.Topic]
	if t == nil {
		return nil, gone()
	}
	p, ok := t.Partition(ref.Index)
	if !ok {
		return nil, gone()
	}
	if p.Leader == (ident.NodeID{}) {
		return nil, fault.New(fault.LeaderUnavailable, "partition %d of topic %q has no leader at the moment", ref.Index, t.Name)
	}
	return a.cfg.Mail(p.Leader)
}

// lives says that the gateway that was asked may be there still.
func (a *Ask) lives(s snapshot, to *inbox.Address) bool {
	if to.Node == a.cfg.Self {
		return a.mine(to)
	}
	n := s.Nodes[to.Node]
	return a.cfg.Peer != nil && n != nil && n.Serves() && n.Gateway()
}

// ServeReply takes the reply to a request of this gateway, from another one.
func (a *Ask) ServeReply(ctx context.Context, to string, r *inbox.Reply) (rpc.Handed, error) {
	address, err := inbox.Parse(to)
	if err != nil {
		return 0, fault.New(fault.Invalid, "%w", err)
	}
	return a.receive(ctx, &address, r)
}

// receive takes the reply to a request of this gateway's own, if it is the first.
func (a *Ask) receive(ctx context.Context, to *inbox.Address, r *inbox.Reply) (rpc.Handed, error) {
	if !a.mine(to) {
		return rpc.HandedWrongly, nil
	}
	if a.doubts(to) {
		handed, err := a.keep(ctx, a.cfg.Topology.Snapshot(), to, r)
		if err == nil && handed == rpc.HandedOver {
			a.put(to.Token, r) // who looks there may have been quicker
		}
		return handed, err
	}
	switch err := a.take(to.Token, r); {
	case fault.Is(err, fault.RequesterGone) && !a.mine(to): // it ended in between
		return rpc.HandedWrongly, nil
	case fault.Is(err, fault.RequesterGone):
		return rpc.HandedNobody, nil
	case err != nil:
		return 0, err
	}
	return rpc.HandedOver, nil
}

// unreached reports an error after which another try may succeed, or another place.
func unreached(err error) bool { return err != nil && passing(err) }

// passing says that the same call may be answered later, or by another leader.
func passing(err error) bool {
	switch fault.KindOf(err) {
	case fault.LeaderUnavailable, fault.Draining, fault.UnknownOutcome:
		return !fault.Lasting(err)
	}
	return false
}

// await waits for a snapshot newer than the index, and not for longer than a pause. It is
// false when ctx has ended.
func (a *Ask) await(ctx context.Context, index uint64, pause time.Duration) bool {
	limited, cancel := context.WithTimeout(ctx, pause)
	defer cancel()
	if a.cfg.Changes != nil {
		_, _ = a.cfg.Changes.Next(limited, index)
	} else {
		<-limited.Done()
	}
	return ctx.Err() == nil
}

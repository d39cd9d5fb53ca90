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
	return d.address.Node == a.cfg.Self && (!d.address.Lasting || a.mine(&d.address) && a.judge(&d.address) == here)
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
	if a.mine(to) {
		switch v, by := a.first(to, r); {
		case by != here, v == inbox.Gone && !a.mine(to): // it ended in between
		case v == inbox.Full:
			return "", errFull
		case v == inbox.Gone:
			return "", gone()
		default:
			return local, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, replyTime)
	defer cancel()
	e := errand{Ask: a, to: to, reply: r}
	for pause := leastPause; ; pause = min(2*pause, mostPause) {
		s := a.cfg.Topology.Snapshot()
		way, handed, err := e.once(ctx, s)
		switch {
		case err == nil && handed == rpc.HandedOver:
			return way, nil
		case err == nil && e.doubt:
			return "", unsureReply() // that there was a reply may be this one
		case err == nil:
			return "", gone()
		case !unreached(err):
			return "", err
		}
		if !a.await(ctx, s.Index, pause) {
			if e.doubt {
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

var errFull = fault.New(fault.Limit, "the node keeps as many replies for repeated requests as it may; reply again in a moment").With("limit", "max_kept_replies").Overload()

// put gives a reply to those who wait here.
func (a *Ask) put(token inbox.Token, r *inbox.Reply) {
	a.mu.Lock()
	callers, _ := a.box.Put(token, r)
	a.mu.Unlock()
	tell(callers, r)
}

// first does so where this gateway decides that it is the first; else it does nothing.
func (a *Ask) first(to *inbox.Address, r *inbox.Reply) (inbox.Put, judge) {
	a.mu.Lock()
	if by := a.judgeLocked(a.byToken[to.Token]); by != here && !a.box.Answered(to.Token) {
		a.mu.Unlock()
		return 0, by
	}
	callers, v := a.box.Put(to.Token, r)
	a.mu.Unlock()
	tell(callers, r)
	return v, here
}

func tell(callers []*inbox.Caller, r *inbox.Reply) {
	for _, c := range callers {
		c.Of.(*Call).answered(r, nil)
	}
}

// keep gives a reply to the leader of the request's partition; gone: its gateway has said
// that it takes none by itself.
func (a *Ask) keep(ctx context.Context, s snapshot, to *inbox.Address, r *inbox.Reply, gone bool) (rpc.Handed, error) {
	m, err := a.mail(s, to.Ref())
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, handTime)
	defer cancel()
	return m.KeepReply(ctx, to.String(), r, gone)
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

// ServeReply takes the reply to a request of this gateway, from another one. One of a third
// gateway's it passes on: whoever gives it cannot reach that.
func (a *Ask) ServeReply(ctx context.Context, to string, r *inbox.Reply) (rpc.Handed, error) {
	address, err := inbox.Parse(to)
	if err != nil {
		return 0, fault.New(fault.Invalid, "%w", err)
	}
	if address.Node != a.cfg.Self {
		return a.hand(ctx, address.Node, handTime, &address, r)
	}
	return a.receive(ctx, &address, r)
}

// hand gives a reply to another gateway: to the one that was asked, or to one that passes it on.
func (a *Ask) hand(ctx context.Context, by ident.NodeID, within time.Duration, to *inbox.Address, r *inbox.Reply) (rpc.Handed, error) {
	if a.cfg.Peer == nil {
		return 0, fault.New(fault.LeaderUnavailable, "node %s cannot be reached: there is no other node", by)
	}
	p, err := a.cfg.Peer(by)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return p.HandReply(ctx, to.String(), r)
}

// receive takes the reply to a request of this gateway's own, if it is the first.
func (a *Ask) receive(ctx context.Context, to *inbox.Address, r *inbox.Reply) (rpc.Handed, error) {
	if !a.mine(to) {
		return rpc.HandedWrongly, nil
	}
	switch v, by := a.first(to, r); {
	case by == nobody:
		return 0, fault.New(fault.LeaderUnavailable, "the gateway that was asked is not sure to count as alive: it takes no reply until it is, or until the leader of the request's partition decides")
	case by == leader:
		handed, err := a.keep(ctx, a.cfg.Topology.Snapshot(), to, r, true)
		if err == nil && handed == rpc.HandedOver {
			a.put(to.Token, r) // who looks there may have been quicker
		}
		return handed, err
	case v == inbox.Gone && !a.mine(to): // it ended in between
		return rpc.HandedWrongly, nil
	case v == inbox.Gone:
		return rpc.HandedNobody, nil
	case v == inbox.Full:
		return 0, errFull
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

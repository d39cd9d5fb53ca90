package rpc

import (
	"context"
	"fmt"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/inbox"
	"tidewire/internal/record"
	"tidewire/internal/rpc/tidewirepb"
)

// HandReply gives a reply to the gateway that was asked.
func (r *Peer) HandReply(ctx context.Context, to string, x *inbox.Reply) (Handed, error) {
	a, err := call(ctx, r, fault.LeaderUnavailable, changes, r.services.HandReply, handMessage(to, x))
	return Handed(a.GetHanded()), err
}

// CollectReply waits for the reply to a request of a gateway, at most MaxWait.
func (r *Peer) CollectReply(ctx context.Context, to string, wait time.Duration) (Collected, error) {
	return r.collected(call(ctx, r, fault.LeaderUnavailable, asks, r.services.CollectReply, &tidewirepb.CollectReplyRequest{Inbox: to, WaitNs: int64(wait)}))
}

// KeepReply gives a reply to the leader of the request's partition; gone: its gateway has
// said that it takes none by itself.
func (r *Peer) KeepReply(ctx context.Context, to string, x *inbox.Reply, gone bool) (Handed, error) {
	m := handMessage(to, x)
	m.Gone = gone
	a, err := call(ctx, r, fault.LeaderUnavailable, changes, r.broker.KeepReply, m)
	return Handed(a.GetHanded()), err
}

// KeptReply waits for a reply at the leader of the request's partition, at most MaxWait.
func (r *Peer) KeptReply(ctx context.Context, to string, until int64, wait time.Duration) (Collected, error) {
	q := &tidewirepb.CollectReplyRequest{Inbox: to, UntilMs: until, WaitNs: int64(wait)}
	return r.collected(call(ctx, r, fault.LeaderUnavailable, asks, r.broker.KeptReply, q))
}

// Original asks the leader of a partition for the record that an idempotency key brought.
func (r *Peer) Original(ctx context.Context, s Sought) (Original, error) {
	a, err := call(ctx, r, fault.LeaderUnavailable, asks, r.broker.Original, &tidewirepb.OriginalRequest{
		Partition: partitionMessage(s.Partition), Principal: s.Key.Principal, Key: s.Key.Key, Hash: s.Key.Hash[:],
	})
	if err != nil {
		return Original{}, err
	}
	return Original{Known: a.Known, Offset: ident.Offset(a.Offset), Timestamp: a.Timestamp}, nil
}

func handMessage(to string, x *inbox.Reply) *tidewirepb.HandReplyRequest {
	return &tidewirepb.HandReplyRequest{Inbox: to, Reply: replyMessage(x)}
}

func replyMessage(x *inbox.Reply) *tidewirepb.Reply {
	if x == nil {
		return nil
	}
	m := &tidewirepb.Reply{Status: uint32(x.Status), ContentType: x.ContentType, Value: x.Value}
	for _, h := range x.Headers {
		m.Headers = append(m.Headers, &tidewirepb.Reply_Header{Name: h.Name, Value: h.Value})
	}
	return m
}

// replyOf is the way back of replyMessage.
func replyOf(m *tidewirepb.Reply) (*inbox.Reply, error) {
	if m == nil {
		return nil, nil
	}
	if m.Status != 0 && (m.Status < inbox.MinStatus || m.Status > inbox.MaxStatus) {
		return nil, fmt.Errorf("a reply of status %d", m.Status)
	}
	x := &inbox.Reply{Status: int(m.Status), ContentType: m.ContentType, Value: m.Value}
	for _, h := range m.Headers {
		x.Headers = append(x.Headers, record.HeaderField{Name: h.GetName(), Value: h.GetValue()})
	}
	return x, nil
}

func (r *Peer) collected(a *tidewirepb.CollectReplyResponse, err error) (Collected, error) {
	if err != nil {
		return Collected{}, err
	}
	x, err := replyOf(a.Reply)
	if err != nil {
		return Collected{}, r.wrong(err)
	}
	return Collected{Reply: x, Fate: Fate(a.Fate)}, nil
}

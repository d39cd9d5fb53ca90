package rpc

import (
	"context"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/inbox"
	"tidewire/internal/record"
	"tidewire/internal/rpc/tidewirepb"
)

func (n nodeService) HandReply(ctx context.Context, r *tidewirepb.HandReplyRequest) (*tidewirepb.HandReplyResponse, error) {
	b, err := n.backend()
	if err != nil {
		return nil, err
	}
	return hand(ctx, r, b.HandReply)
}

func (n nodeService) CollectReply(ctx context.Context, r *tidewirepb.CollectReplyRequest) (*tidewirepb.CollectReplyResponse, error) {
	b, err := n.backend()
	if err != nil {
		return nil, err
	}
	return n.s.collect(ctx, r, b.CollectReply)
}

func (v brokerService) KeepReply(ctx context.Context, r *tidewirepb.HandReplyRequest) (*tidewirepb.HandReplyResponse, error) {
	b, err := v.backend()
	if err != nil {
		return nil, err
	}
	return hand(ctx, r, func(ctx context.Context, to string, x *inbox.Reply) (Handed, error) {
		return b.KeepReply(ctx, to, x, r.Gone)
	})
}

func (v brokerService) KeptReply(ctx context.Context, r *tidewirepb.CollectReplyRequest) (*tidewirepb.CollectReplyResponse, error) {
	b, err := v.backend()
	if err != nil {
		return nil, err
	}
	return v.s.collect(ctx, r, func(ctx context.Context, to string, wait time.Duration) (Collected, error) {
		return b.KeptReply(ctx, to, r.UntilMs, wait)
	})
}

func hand(ctx context.Context, r *tidewirepb.HandReplyRequest, do func(context.Context, string, *inbox.Reply) (Handed, error)) (*tidewirepb.HandReplyResponse, error) {
	x, err := replyOf(r.Reply)
	if err == nil && x == nil {
		err = fault.New(fault.Invalid, "there is no reply")
	}
	if err != nil {
		return nil, refuse(fault.New(fault.Invalid, "%w", err))
	}
	handed, err := do(ctx, r.Inbox, x)
	if err != nil {
		return nil, statusOf(err)
	}
	return &tidewirepb.HandReplyResponse{Handed: tidewirepb.HandReplyResponse_Handed(handed)}, nil
}

func (s *Server) collect(ctx context.Context, r *tidewirepb.CollectReplyRequest, do func(context.Context, string, time.Duration) (Collected, error)) (*tidewirepb.CollectReplyResponse, error) {
	var out *tidewirepb.CollectReplyResponse
	err := s.streaming(ctx, takeMoment, nil, func(ctx context.Context) error {
		got, err := do(ctx, r.Inbox, min(max(time.Duration(r.WaitNs), 0), MaxWait))
		if err == nil {
			out = &tidewirepb.CollectReplyResponse{Reply: replyMessage(got.Reply), Fate: tidewirepb.CollectReplyResponse_Fate(got.Fate)}
		}
		return err
	})
	if err != nil {
		return nil, statusOf(err) // out may be under way still
	}
	return out, nil
}

func (v brokerService) Original(ctx context.Context, r *tidewirepb.OriginalRequest) (*tidewirepb.OriginalResponse, error) {
	b, err := v.backend()
	if err != nil {
		return nil, err
	}
	p, err := partitionOf(r.Partition)
	if err != nil {
		return nil, refuse(fault.As(err))
	}
	s := Sought{Partition: p, Key: record.Idempotency{Principal: r.Principal, Key: r.Key}}
	if copy(s.Key.Hash[:], r.Hash) != len(s.Key.Hash) || len(r.Hash) != len(s.Key.Hash) {
		return nil, refuse(fault.New(fault.Invalid, "a hash of %d bytes", len(r.Hash)))
	}
	var out *tidewirepb.OriginalResponse
	err = v.s.streaming(ctx, takeMoment, nil, func(ctx context.Context) error {
		got, err := b.Original(ctx, s)
		if err == nil {
			out = &tidewirepb.OriginalResponse{Known: got.Known, Offset: int64(got.Offset), Timestamp: got.Timestamp}
		}
		return err
	})
	if err != nil {
		return nil, statusOf(err) // out may be under way still
	}
	return out, nil
}

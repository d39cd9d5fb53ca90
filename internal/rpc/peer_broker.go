package rpc

import (
	"context"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc/tidewirepb"
)

// Read asks for committed records. Where there are none yet it waits up to wait (at
// most MaxWait) for some. As with every reader, Bounds may be filled in beside an error.
func (r *Peer) Read(ctx context.Context, q Read, wait time.Duration) (ReadResult, error) {
	a, err := call(ctx, r, fault.LeaderUnavailable, asks, r.broker.Read, &tidewirepb.ReadRequest{
		Partition: partitionMessage(q.Partition), Offset: int64(q.Offset), MaxBytes: uint32(max(q.MaxBytes, 0)), WaitNs: int64(wait),
	})
	if err != nil {
		return ReadResult{}, err
	}
	return ReadResult{Batches: a.Batches, Bounds: boundsOf(a.Bounds)}, errorOf(a.Problem)
}

// Bounds asks for the bounds of a partition. It waits up to wait (at most MaxWait)
// until its high watermark is above after.
func (r *Peer) Bounds(ctx context.Context, p ident.Partition, after ident.Offset, wait time.Duration) (Bounds, error) {
	all, err := r.ManyBounds(ctx, []BoundsOf{{p, after}}, wait)
	if err != nil {
		return Bounds{}, err
	}
	return all[0].Bounds, all[0].Err
}

// ManyBounds asks for the bounds of partitions. If all of them that wait have nothing yet,
// it waits for the first that does, up to wait (at most MaxWait).
func (r *Peer) ManyBounds(ctx context.Context, of []BoundsOf, wait time.Duration) ([]BoundsAnswer, error) {
	q := &tidewirepb.BoundsRequest{Items: make([]*tidewirepb.BoundsRequest_Item, len(of)), WaitNs: int64(wait)}
	for i, o := range of {
		q.Items[i] = &tidewirepb.BoundsRequest_Item{Partition: partitionMessage(o.Partition), After: int64(o.After)}
	}
	a, err := call(ctx, r, fault.LeaderUnavailable, asks, r.broker.Bounds, q)
	if err != nil {
		return nil, err
	}
	if len(a.Items) != len(of) {
		return nil, fault.New(fault.Internal, "%s answered %d bounds of %d", r.name(), len(a.Items), len(of))
	}
	out := make([]BoundsAnswer, len(of))
	for i, it := range a.Items {
		out[i] = BoundsAnswer{Bounds: boundsOf(it.GetBounds()), Err: errorOf(it.GetProblem())}
	}
	return out, nil
}

// OffsetAt asks for the first offset at or after a moment (ms since 1970).
func (r *Peer) OffsetAt(ctx context.Context, p ident.Partition, ms int64) (ident.Offset, error) {
	a, err := call(ctx, r, fault.LeaderUnavailable, asks, r.broker.OffsetAt, &tidewirepb.OffsetAtRequest{Partition: partitionMessage(p), Ms: ms})
	if err != nil {
		return 0, err
	}
	return ident.Offset(a.Offset), nil
}

// EpochEnd asks where a leader epoch ended.
func (r *Peer) EpochEnd(ctx context.Context, p ident.Partition, e ident.Epoch) (ident.Offset, error) {
	a, err := call(ctx, r, fault.LeaderUnavailable, asks, r.broker.EpochEnd, &tidewirepb.EpochEndRequest{Partition: partitionMessage(p), Epoch: uint32(e)})
	if err != nil {
		return 0, err
	}
	return ident.Offset(a.Offset), nil
}

package rpc

import (
	"context"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc/tidewirepb"
)

// Take asks for records to be leased; it waits at most MaxWait. What was leased by a call
// that broke comes again with the next one, which says that this one was not heard.
func (r *Peer) Take(ctx context.Context, t Take) (Taken, error) {
	q := &tidewirepb.TakeRequest{
		Life: memberMessage(t.MemberLife), Index: t.Index, Partitions: make([]*tidewirepb.Partition, len(t.Partitions)),
		Limit: uint32(max(t.Limit, 0)), MaxBytes: uint32(max(t.MaxBytes, 0)), WaitNs: int64(t.Wait), Taker: t.Taker, Call: t.Call, Heard: t.Heard,
	}
	for i, p := range t.Partitions {
		q.Partitions[i] = partitionMessage(p)
	}
	a, err := call(ctx, r, fault.LeaderUnavailable, asks, r.broker.Take, q)
	if err != nil {
		return Taken{}, err
	}
	out := Taken{Of: make([]TakenOf, len(a.Items)), More: a.More, Held: int(a.Held)}
	for i, it := range a.Items {
		of := TakenOf{Batches: it.Batches, Leases: make([]Lease, len(it.Leases)), Err: errorOf(it.Problem)}
		if of.Partition, err = partitionOf(it.Partition); err != nil {
			return Taken{}, r.wrong(err)
		}
		for k, l := range it.Leases {
			of.Leases[k] = Lease{Offset: ident.Offset(l.Offset), Delivery: int(l.Delivery), Left: time.Duration(l.LeftNs)}
		}
		out.Of[i] = of
	}
	return out, nil
}

// Settle says what a member has done with its records. An UnknownOutcome may be said again.
func (r *Peer) Settle(ctx context.Context, s Settle) (Settled, error) {
	q := &tidewirepb.SettleRequest{Life: memberMessage(s.MemberLife), Index: s.Index, Items: make([]*tidewirepb.SettleRequest_Item, len(s.Of)), Taker: s.Taker, Call: s.Call}
	for i := range s.Of {
		q.Items[i] = settleMessage(&s.Of[i])
	}
	a, err := call(ctx, r, fault.LeaderUnavailable, changes, r.broker.Settle, q)
	if err != nil {
		return Settled{}, err
	}
	out := Settled{Of: make([]SettledOf, len(a.Items))}
	for i, it := range a.Items {
		of := SettledOf{Stale: make([]Stale, len(it.Stale)), Err: errorOf(it.Problem)}
		if of.Partition, err = partitionOf(it.Partition); err != nil {
			return Settled{}, r.wrong(err)
		}
		for k, s := range it.Stale {
			of.Stale[k] = Stale{Offset: ident.Offset(s.Offset), Err: errorOf(s.Problem)}
		}
		for _, e := range it.Extended {
			of.Extended = append(of.Extended, Extended{Offset: ident.Offset(e.Offset), Left: time.Duration(e.LeftNs)})
		}
		out.Of[i] = of
	}
	return out, nil
}

func settleMessage(of *SettleOf) *tidewirepb.SettleRequest_Item {
	m := &tidewirepb.SettleRequest_Item{
		Partition: partitionMessage(of.Partition), Ack: numbers(of.Ack), Through: int64(of.Through), Extend: numbers(of.Extend), Heard: of.Heard,
	}
	for _, n := range of.Nack {
		m.Nack = append(m.Nack, &tidewirepb.SettleRequest_Nack{Offset: int64(n.Offset), DelayNs: int64(n.Delay)})
	}
	for _, j := range of.Reject {
		m.Reject = append(m.Reject, &tidewirepb.SettleRequest_Reject{Offset: int64(j.Offset), Reason: j.Reason})
	}
	return m
}

// Standings asks how groups stand on partitions.
func (r *Peer) Standings(ctx context.Context, s StandingsOf) ([]GroupStanding, error) {
	q := &tidewirepb.StandingsRequest{Index: s.Index, Groups: make([][]byte, len(s.Groups)), Partitions: make([]*tidewirepb.Partition, len(s.Partitions))}
	for i := range s.Groups {
		q.Groups[i] = s.Groups[i][:]
	}
	for i, p := range s.Partitions {
		q.Partitions[i] = partitionMessage(p)
	}
	a, err := call(ctx, r, fault.LeaderUnavailable, asks, r.broker.Standings, q)
	if err != nil {
		return nil, err
	}
	out := make([]GroupStanding, len(a.Items))
	for i, it := range a.Items {
		of := GroupStanding{
			Committed: ident.Offset(it.Committed), End: ident.Offset(it.End), InFlight: int(it.InFlight), Lag: it.Lag,
			Redelivered: it.Redelivered, Dead: it.Dead, Expired: it.Expired, Paused: it.Paused,
		}
		if it.OldestMs != 0 {
			of.Oldest = time.UnixMilli(it.OldestMs)
		}
		if of.Group, err = id16[ident.GroupID](it.Group); err != nil {
			return nil, r.wrong(err)
		}
		if of.Partition, err = partitionOf(it.Partition); err != nil {
			return nil, r.wrong(err)
		}
		out[i] = of
	}
	return out, nil
}

// RecordStatus asks what became of a record.
func (r *Peer) RecordStatus(ctx context.Context, s RecordStatusOf) ([]RecordStatus, error) {
	a, err := call(ctx, r, fault.LeaderUnavailable, asks, r.broker.RecordStatus, &tidewirepb.RecordStatusRequest{
		Index: s.Index, Partition: partitionMessage(s.Partition), Offset: int64(s.Offset),
	})
	if err != nil {
		return nil, err
	}
	out := make([]RecordStatus, len(a.Items))
	for i, it := range a.Items {
		out[i] = RecordStatus{State: RecordState(it.State), Member: it.Member, Left: time.Duration(it.LeftNs), Delivery: int(it.Delivery)}
		if out[i].Group, err = id16[ident.GroupID](it.Group); err != nil {
			return nil, r.wrong(err)
		}
	}
	return out, nil
}

// wrong is an answer that cannot be read.
func (r *Peer) wrong(err error) error {
	return fault.New(fault.Internal, "%s answered what cannot be read: %w", r.name(), err)
}

func memberMessage(l cluster.MemberLife) *tidewirepb.MemberLife {
	return &tidewirepb.MemberLife{Group: l.Group[:], Member: l.Member, Epoch: uint64(l.Epoch)}
}

// numbers are offsets as they go over the wire.
func numbers(of []ident.Offset) []int64 {
	out := make([]int64, len(of))
	for i, o := range of {
		out[i] = int64(o)
	}
	return out
}

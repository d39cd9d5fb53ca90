package rpc

import (
	"context"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc/tidewirepb"
)

// takeMoment is how long a Take has to end by itself when the server stops.
const takeMoment = 100 * time.Millisecond

func (v brokerService) Take(ctx context.Context, r *tidewirepb.TakeRequest) (*tidewirepb.TakeResponse, error) {
	b, err := v.backend()
	if err != nil {
		return nil, err
	}
	take := Take{
		Index: r.Index, Limit: int(min(r.Limit, MaxTaken)), MaxBytes: int(min(r.MaxBytes, MaxSendBytes)),
		Wait: min(max(time.Duration(r.WaitNs), 0), MaxWait), Taker: r.Taker, Call: r.Call, Heard: r.Heard,
	}
	if take.MemberLife, err = memberOf(r.Life); err != nil {
		return nil, refuse(fault.As(err))
	}
	if take.Partitions, err = partitionsOf(r.Partitions); err != nil {
		return nil, refuse(fault.As(err))
	}
	var out *tidewirepb.TakeResponse
	err = v.s.streaming(ctx, takeMoment, nil, func(ctx context.Context) error {
		taken, err := b.Take(ctx, take)
		if err == nil {
			out, err = takenMessage(&taken)
		}
		return err
	})
	if err != nil {
		return nil, statusOf(err) // out may be under way still
	}
	return out, nil
}

func takenMessage(t *Taken) (*tidewirepb.TakeResponse, error) {
	out := &tidewirepb.TakeResponse{Items: make([]*tidewirepb.TakeResponse_Item, len(t.Of)), More: t.More, Held: uint32(t.Held)}
	bytes := 0
	for i := range t.Of {
		of := &t.Of[i]
		bytes += len(of.Batches)
		it := &tidewirepb.TakeResponse_Item{
			Partition: partitionMessage(of.Partition), Batches: of.Batches, Leases: make([]*tidewirepb.TakeResponse_Lease, len(of.Leases)), Problem: problemOf(of.Err),
		}
		for k, l := range of.Leases {
			it.Leases[k] = &tidewirepb.TakeResponse_Lease{Offset: int64(l.Offset), Delivery: uint32(l.Delivery), LeftNs: int64(l.Left)}
		}
		out.Items[i] = it
	}
	if bytes > MaxSendBytes {
		return nil, fault.New(fault.Internal, "a take gave %d bytes; a message takes %d", bytes, MaxSendBytes)
	}
	return out, nil
}

func (v brokerService) Settle(ctx context.Context, r *tidewirepb.SettleRequest) (*tidewirepb.SettleResponse, error) {
	b, err := v.backend()
	if err != nil {
		return nil, err
	}
	settle, err := settleOf(r)
	if err != nil {
		return nil, refuse(fault.As(err))
	}
	settled, err := b.Settle(ctx, settle)
	if err != nil {
		return nil, statusOf(err)
	}
	out := &tidewirepb.SettleResponse{Items: make([]*tidewirepb.SettleResponse_Item, len(settled.Of))}
	for i, of := range settled.Of {
		it := &tidewirepb.SettleResponse_Item{Partition: partitionMessage(of.Partition), Stale: make([]*tidewirepb.SettleResponse_Stale, len(of.Stale)), Problem: problemOf(of.Err)}
		for k, s := range of.Stale {
			it.Stale[k] = &tidewirepb.SettleResponse_Stale{Offset: int64(s.Offset), Problem: problemOf(s.Err)}
		}
		for _, e := range of.Extended {
			it.Extended = append(it.Extended, &tidewirepb.SettleResponse_Extended{Offset: int64(e.Offset), LeftNs: int64(e.Left)})
		}
		out.Items[i] = it
	}
	return out, nil
}

func settleOf(r *tidewirepb.SettleRequest) (s Settle, err error) {
	s = Settle{Index: r.Index, Of: make([]SettleOf, len(r.Items)), Taker: r.Taker, Call: r.Call}
	if s.MemberLife, err = memberOf(r.Life); err != nil {
		return s, err
	}
	for i, it := range r.Items {
		of := SettleOf{Ack: offsetsOf(it.Ack), Through: ident.Offset(it.Through), Extend: offsetsOf(it.Extend), Heard: it.Heard}
		if of.Partition, err = partitionOf(it.Partition); err != nil {
			return s, err
		}
		for _, n := range it.Nack {
			of.Nack = append(of.Nack, Nack{Offset: ident.Offset(n.Offset), Delay: time.Duration(n.DelayNs)})
		}
		for _, j := range it.Reject {
			of.Reject = append(of.Reject, Reject{Offset: ident.Offset(j.Offset), Reason: j.Reason})
		}
		s.Of[i] = of
	}
	return s, s.Check()
}

func (v brokerService) Standings(ctx context.Context, r *tidewirepb.StandingsRequest) (*tidewirepb.StandingsResponse, error) {
	b, err := v.backend()
	if err != nil {
		return nil, err
	}
	if n := len(r.Groups) * len(r.Partitions); n > MaxStandings {
		return nil, refuse(fault.New(fault.Invalid, "standings of %d groups on %d partitions at once; %d are allowed in all", len(r.Groups), len(r.Partitions), MaxStandings))
	}
	asked := StandingsOf{Index: r.Index, Groups: make([]ident.GroupID, len(r.Groups))}
	for i, g := range r.Groups {
		if asked.Groups[i], err = id16[ident.GroupID](g); err != nil {
			return nil, refuse(fault.As(err))
		}
	}
	if asked.Partitions, err = partitionsOf(r.Partitions); err != nil {
		return nil, refuse(fault.As(err))
	}
	standings, err := b.Standings(ctx, asked)
	if err != nil {
		return nil, statusOf(err)
	}
	out := &tidewirepb.StandingsResponse{Items: make([]*tidewirepb.StandingsResponse_Item, len(standings))}
	for i := range standings {
		s := &standings[i]
		it := &tidewirepb.StandingsResponse_Item{
			Group: s.Group[:], Partition: partitionMessage(s.Partition), Committed: int64(s.Committed), End: int64(s.End), InFlight: uint32(s.InFlight),
			Lag: s.Lag, Redelivered: s.Redelivered, Dead: s.Dead, Expired: s.Expired, Paused: s.Paused,
		}
		if !s.Oldest.IsZero() {
			it.OldestMs = Clock(s.Oldest)
		}
		out.Items[i] = it
	}
	return out, nil
}

func (v brokerService) RecordStatus(ctx context.Context, r *tidewirepb.RecordStatusRequest) (*tidewirepb.RecordStatusResponse, error) {
	b, p, err := v.at(r.Partition)
	if err != nil {
		return nil, err
	}
	all, err := b.RecordStatus(ctx, RecordStatusOf{Index: r.Index, Partition: p, Offset: ident.Offset(r.Offset)})
	if err != nil {
		return nil, statusOf(err)
	}
	out := &tidewirepb.RecordStatusResponse{Items: make([]*tidewirepb.RecordStatusResponse_Item, len(all))}
	for i := range all {
		s := &all[i]
		out.Items[i] = &tidewirepb.RecordStatusResponse_Item{Group: s.Group[:], State: string(s.State), Member: s.Member, LeftNs: int64(s.Left), Delivery: uint32(s.Delivery)}
	}
	return out, nil
}

func memberOf(l *tidewirepb.MemberLife) (cluster.MemberLife, error) {
	group, err := id16[ident.GroupID](l.GetGroup())
	return cluster.MemberLife{Group: group, Member: l.GetMember(), Epoch: ident.MemberEpoch(l.GetEpoch())}, err
}

// partitionsOf reads a list of partitions, as many as a Bounds may name.
func partitionsOf(of []*tidewirepb.Partition) ([]ident.Partition, error) {
	if len(of) > maxBounds {
		return nil, fault.New(fault.Invalid, "%d partitions at once; %d are allowed", len(of), maxBounds)
	}
	out := make([]ident.Partition, len(of))
	for i, p := range of {
		var err error
		if out[i], err = partitionOf(p); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// offsetsOf is the way back of numbers.
func offsetsOf(of []int64) []ident.Offset {
	if len(of) == 0 {
		return nil
	}
	out := make([]ident.Offset, len(of))
	for i, o := range of {
		out[i] = ident.Offset(o)
	}
	return out
}

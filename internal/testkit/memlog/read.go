package memlog

import (
	"context"
	"sort"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// Reads is how often Read was called.
func (b *Broker) Reads() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reads
}

func (b *Broker) Read(_ context.Context, r rpc.Read) (rpc.ReadResult, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reads++
	l, bounds, err := b.logLocked(r.Partition)
	res := rpc.ReadResult{Bounds: bounds}
	switch {
	case err != nil:
		return res, err
	case r.Offset < bounds.Start:
		return res, fault.New(fault.OffsetExpired, "offset %d is gone", r.Offset)
	case r.Offset > bounds.HW:
		return res, fault.New(fault.OffsetNotFound, "offset %d is not there yet", r.Offset)
	case r.Offset == bounds.HW:
		return res, nil
	case l.broken > 0 && r.Offset >= l.broken:
		return res, fault.New(fault.LeaderUnavailable, "damaged from %d on", l.broken).Lasts()
	}
	first := sort.Search(len(l.batches), func(i int) bool { return l.batches[i].Header().Next() > r.Offset })
	for _, batch := range l.batches[first:] {
		if l.broken > 0 && batch.Header().Next() > l.broken {
			break
		}
		if len(res.Batches) > 0 && len(res.Batches)+len(batch) > r.MaxBytes {
			break
		}
		res.Batches = append(res.Batches, batch...)
	}
	return res, nil
}

// Tail is Read: all is at one place.
func (b *Broker) Tail(ctx context.Context, r rpc.Read) (rpc.ReadResult, error) {
	return b.Read(ctx, r)
}

func (b *Broker) logLocked(ref ident.Partition) (*log, rpc.Bounds, error) {
	l := b.logs[ref]
	if l == nil || l.down {
		return nil, rpc.Bounds{}, fault.New(fault.LeaderUnavailable, "partition %s is not served here", ref)
	}
	return l, rpc.Bounds{Start: l.start, HW: ident.Offset(len(l.rows)), Epoch: l.epoch}, nil
}

func (b *Broker) Bounds(_ context.Context, ref ident.Partition) (rpc.Bounds, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, bounds, err := b.logLocked(ref)
	return bounds, err
}

// OffsetAt is the first record of a time or later.
func (b *Broker) OffsetAt(_ context.Context, ref ident.Partition, ms int64) (ident.Offset, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l, bounds, err := b.logLocked(ref)
	if err != nil {
		return 0, err
	}
	for o := bounds.Start; o < bounds.HW; o++ {
		if l.rows[o].ms >= ms {
			return o, nil
		}
	}
	return bounds.HW, nil
}

func (b *Broker) EpochEnd(_ context.Context, ref ident.Partition, e ident.Epoch) (ident.Offset, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l, bounds, err := b.logLocked(ref)
	if err != nil {
		return 0, err
	}
	if end, ok := l.ends[e]; ok {
		return end, nil
	}
	return bounds.HW, nil
}

// Wait is closed when there may be more than what is before an offset: it
// wakes too often, never too late.
func (b *Broker) Wait(ref ident.Partition, after ident.Offset) (<-chan struct{}, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l, bounds, err := b.logLocked(ref)
	if err != nil {
		return nil, err
	}
	if bounds.HW > after {
		ch := make(chan struct{})
		close(ch)
		return ch, nil
	}
	return l.changed, nil
}

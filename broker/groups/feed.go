package groups

import (
	"cmp"
	"context"
	"slices"
	"time"

	"tidewire/broker/lease"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// Bounds of what is read of a log at once.
const (
	minChunk = 64 << 10
	maxChunk = 1 << 20
)

// look reads on for those who wait here, and wakes one who can have something.
func (u *unit) look(ctx context.Context, b rpc.Bounds) {
	var none bool
	if u.with(func(m *lease.Machine, now time.Time) {
		m.Moved(now, b.Start, b.HW)
		none = len(u.takers) == 0 || now.Before(u.unread)
	}) != nil || none {
		return
	}
	var held shelf
	if err := u.fill(ctx, 1, minChunk, &held); err != nil {
		_ = u.with(func(_ *lease.Machine, now time.Time) { u.unread = now.Add(maxPause) })
		u.post.g.cfg.Logger.Debug("a log cannot be read for a group", "topic_id", u.post.ref.Topic, "partition", u.post.ref.Index, "group", u.name, "err", err)
	}
}

// fill reads records into the machine until n can be leased, or there are no more. What was
// read is left on a shelf.
func (u *unit) fill(ctx context.Context, n, chunk int, held *shelf) error {
	return untilDone(func() (more bool, err error) {
		return u.readOn(ctx, func(m *lease.Machine) (ident.Offset, int) { return m.Wants(n) }, chunk, held)
	})
}

// recall reads on up to what a member has done with, where a former leader may have leased
// records on the way.
func (u *unit) recall(ctx context.Context, through ident.Offset) error {
	return untilDone(func() (more bool, err error) {
		var held shelf // of one read: nothing of it goes out
		return u.readOn(ctx, func(m *lease.Machine) (ident.Offset, int) { return m.Unread(through) }, maxChunk, &held)
	})
}

func untilDone(step func() (more bool, err error)) error {
	for {
		if more, err := step(); err != nil || !more {
			return err
		}
	}
}

// readOn reads some records into the machine, if it wants any. It says whether to go on.
func (u *unit) readOn(ctx context.Context, wants func(*lease.Machine) (ident.Offset, int), chunk int, held *shelf) (more bool, err error) {
	var from ident.Offset
	var want int
	if err := u.with(func(m *lease.Machine, _ time.Time) { from, want = wants(m) }); err != nil || want == 0 {
		return false, err
	}
	if err := held.read(ctx, u.post, from, chunk); err != nil {
		if !fault.Is(err, fault.OffsetExpired) {
			return false, err
		}
		b, err := u.post.bounds() // retention came first
		if err != nil {
			return false, err
		}
		return true, u.with(func(m *lease.Machine, now time.Time) { m.Moved(now, b.Start, b.HW) })
	}
	next, records, err := held.last()
	if err != nil {
		return false, err
	}
	u.recordBytes.Store(int64(len(held.chunks[len(held.chunks)-1]) / max(1, len(records))))
	err = u.with(func(m *lease.Machine, _ time.Time) { more = m.Offer(from, next, records) > from })
	return more, err
}

// shelf holds what was read of a log.
type shelf struct {
	chunks [][]byte
	places []place // of batches, by offset
	fresh  int     // of places: what the last read brought
}

// place is where a batch lies on a shelf.
type place struct {
	base, next  ident.Offset
	chunk       int
	from, to    int // in the chunk
	recordBytes int // of one of its records, about
}

func (p place) bytes() int { return p.to - p.from }

// read puts batches on the shelf, from the one that holds an offset on.
func (s *shelf) read(ctx context.Context, p *post, from ident.Offset, bytes int) error {
	got, err := p.g.cfg.Partitions.Read(ctx, rpc.Read{Partition: p.ref, Offset: from, MaxBytes: bytes})
	if err != nil {
		return err
	}
	if got.Bounds.Epoch != p.epoch {
		return notLed(p.ref)
	}
	if len(got.Batches) == 0 {
		return fault.New(fault.LeaderUnavailable, "there is nothing to read at offset %d", from)
	}
	s.chunks = append(s.chunks, got.Batches)
	s.fresh = 0
	for at := 0; at < len(got.Batches); {
		h, err := record.ParseHeader(got.Batches[at:])
		if err != nil {
			return fault.New(fault.Internal, "batches from offset %d: %w", from, err)
		}
		b := place{h.Base, h.Next(), len(s.chunks) - 1, at, at + h.Length, h.Length / max(1, h.Span)}
		at += h.Length
		s.fresh++
		s.places = append(s.places, b)
	}
	return nil
}

// last gives the records that the last read brought, and where they end.
func (s *shelf) last() (next ident.Offset, records []lease.Record, err error) {
	for _, p := range s.places[len(s.places)-s.fresh:] {
		b := record.Batch(s.chunks[p.chunk][p.from:p.to])
		stamp := b.Header().Timestamp
		err = b.Keys(func(delta int, key []byte) bool {
			r := lease.Record{Offset: p.base + ident.Offset(delta), Stamp: stamp}
			if key != nil {
				r.Hash, r.Keyed = ident.KeyHash(key), true
			}
			records = append(records, r)
			return true
		})
		if err != nil {
			return 0, nil, fault.New(fault.Internal, "the batch at offset %d: %w", p.base, err)
		}
		next = p.next
	}
	return next, records, nil
}

// find finds the batch that holds an offset.
func (s *shelf) find(o ident.Offset) (place, bool) {
	for _, p := range slices.Backward(s.places) {
		if p.base <= o && o < p.next {
			return p, true
		}
	}
	return place{}, false
}

// pickFrom is the length from which on a batch is left whole only if much of it is leased.
const pickFrom = 16 << 10

// together are batches back to back, by offset, with what is leased of them at least. What
// lies so already is not copied.
func (s *shelf) together(places []place, leases []rpc.Lease) ([]byte, error) {
	if len(places) == 0 {
		return nil, nil
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.base, b.base) })
	offsets := make([]ident.Offset, len(leases))
	for i, l := range leases {
		offsets[i] = l.Offset
	}
	slices.Sort(offsets)
	pieces := make([][]byte, len(places))
	first, bytes, lies := places[0], 0, true
	end := first.from
	for i, p := range places {
		n, _ := slices.BinarySearch(offsets, p.next)
		here := offsets[:n]
		offsets = offsets[n:]
		pieces[i] = s.chunks[p.chunk][p.from:p.to]
		if p.bytes() >= pickFrom && 4*len(here)*p.recordBytes < p.bytes() {
			b, err := record.Batch(pieces[i]).Pick(func(delta int) bool {
				_, leased := slices.BinarySearch(here, p.base+ident.Offset(delta))
				return leased
			})
			if err != nil {
				return nil, fault.New(fault.Internal, "the batch at offset %d: %w", p.base, err)
			}
			pieces[i], lies = b, false
		}
		lies = lies && p.chunk == first.chunk && p.from == end
		end = p.to
		bytes += len(pieces[i])
	}
	if lies {
		return s.chunks[first.chunk][first.from:end:end], nil
	}
	out := make([]byte, 0, bytes)
	for _, b := range pieces {
		out = append(out, b...)
	}
	return out, nil
}

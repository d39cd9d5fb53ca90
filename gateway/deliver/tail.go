package deliver

import (
	"context"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// feedReadBytes bounds one read of a feed: what a round of it takes in.
const feedReadBytes = 512 << 10

// tail is how far a feed has read.
type tail struct {
	feed   *feed
	next   ident.Offset // -1: not begun
	epoch  ident.Epoch  // of the last record read
	leader ident.Epoch  // in which what was read was last known to be the log
	moved  bool         // since it was last cleared
	warned bool         // of what stands in the way
}

// follow reads what is committed from next on until something is wrong; nil
// when the last subscription has gone.
func (t *tail) follow(ctx context.Context) error {
	f, src := t.feed, t.feed.hub.source
	if err := t.settle(ctx); err != nil {
		return err
	}
	for {
		res, err := src.Tail(ctx, rpc.Read{Partition: f.ref, Offset: t.next, MaxBytes: feedReadBytes})
		switch {
		case fault.Is(err, fault.OffsetExpired): // slower than retention
			t.next = res.Bounds.Start
			f.restart(t.next)
			continue
		case fault.Is(err, fault.OffsetNotFound): // the log is shorter than it was
			t.next = res.Bounds.HW
			f.restart(t.next)
			continue
		case err != nil:
			return err
		case res.Bounds.Epoch < t.leader:
			return fault.New(fault.LeaderUnavailable, "who was asked does not know the partition's leader yet")
		}
		f.hw.Store(int64(res.Bounds.HW))
		if res.Bounds.Epoch != t.leader { // another leader, perhaps of another log
			if err := t.settle(ctx); err != nil {
				return err
			}
			continue
		}
		t.moved = true
		if len(res.Batches) > 0 {
			if err := t.take(res.Batches); err != nil {
				return err
			}
			continue
		}
		more, err := src.Wait(f.ref, t.next)
		if err != nil {
			return err
		}
		select {
		case <-more:
		case <-f.stop:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// settle finds where to begin, or whether what was read is still the log.
func (t *tail) settle(ctx context.Context) error {
	f, src := t.feed, t.feed.hub.source
	b, err := src.Bounds(ctx, f.ref)
	if err != nil {
		return err
	}
	t.leader = b.Epoch
	f.hw.Store(int64(b.HW))
	if t.next >= 0 && t.epoch != 0 && t.epoch <= b.Epoch {
		end, err := src.EpochEnd(ctx, f.ref, t.epoch)
		if err != nil {
			return err
		}
		if t.next <= max(end, b.Start) {
			return nil
		}
	} else if t.next >= 0 && t.next <= b.HW {
		return nil
	}
	t.next, t.epoch = b.HW, b.Epoch
	f.restart(t.next)
	return nil
}

// take encodes batches into the ring.
func (t *tail) take(batches []byte) error {
	for len(batches) > 0 {
		b, rest, err := record.Cut(batches)
		if err != nil {
			return err
		}
		batches = rest
		if b.Header().Next() <= t.next {
			continue // read before, or voids alone
		}
		k, err := encode(t.feed.topic, b, &matcher{all: true})
		if err != nil {
			return err
		}
		t.next, t.epoch = k.next, k.epoch
		t.feed.hub.metrics.encoded.Add(float64(len(k.marks)))
		t.feed.publish(k)
	}
	return nil
}

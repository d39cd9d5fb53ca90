package replica

import (
	"context"

	"tidewire/internal/fault"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// Original finds the record that an Idempotency-Key brought, and keeps nothing. It answers
// once that record is committed; that there is none it says only under a lease, for another
// leader may have kept it while this node was paused or cut off.
func (r *Replica) Original(ctx context.Context, k *record.Idempotency) (rpc.Original, error) {
	for {
		found, known, done, err := r.original(k)
		switch {
		case err != nil:
			return rpc.Original{}, err
		case !known:
			return rpc.Original{}, nil
		case done:
			return rpc.Original{Known: true, Offset: found.Offset, Timestamp: found.Timestamp}, nil
		}
		moved, err := r.Wait(found.Offset)
		if err != nil {
			return rpc.Original{}, err
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return rpc.Original{}, fault.New(fault.LeaderUnavailable, "the original of the record is not committed yet in partition %d of topic %q: %w", r.ref.Index, r.cfg.Topic, ctx.Err())
		}
	}
}

// original looks once. done: what was found is committed.
func (r *Replica) original(k *record.Idempotency) (found rpc.RecordResult, known, done bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.stopped != nil:
		return found, false, false, r.stopped
	case r.leader == nil:
		return found, false, false, r.notLed()
	}
	found, known = r.machine.Original(k, rpc.Clock(r.cfg.Now()), r.rules)
	switch {
	case found.Err != nil:
		return found, true, false, found.Err
	case !known && !r.cfg.Lease():
		return found, false, false, r.doubtful()
	}
	return found, known, known && r.leader.HW().Offset > found.Offset, nil
}

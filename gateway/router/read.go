package router

import (
	"context"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// callLimit bounds a call to another node that waits for nothing.
const callLimit = 2 * time.Second

// Read gives committed batches from an offset on. Where it gives none, or nothing is
// left behind them, the leader had no more.
func (r *Router) Read(ctx context.Context, q rpc.Read) (rpc.ReadResult, error) {
	return r.read(ctx, q, false)
}

// Tail is Read for who goes on with Wait.
func (r *Router) Tail(ctx context.Context, q rpc.Read) (rpc.ReadResult, error) {
	return r.read(ctx, q, true)
}

func (r *Router) read(ctx context.Context, q rpc.Read, tail bool) (rpc.ReadResult, error) {
	at, err := r.find(q.Partition)
	if err != nil {
		return rpc.ReadResult{}, err
	}
	own := rpc.ReadResult{}
	if at.replica {
		res, err := r.cfg.Local.Read(ctx, q)
		if at.mine {
			return res, err
		}
		if err == nil && res.Bounds.Epoch == at.epoch {
			if tail || !reachesEnd(res) {
				return res, nil
			}
			own = res
		}
		// A follower may be behind, damaged or silent; what it does not give the
		// leader may have.
	}
	res, err := r.readLeader(ctx, at, q, tail)
	if err != nil && len(own.Batches) > 0 {
		return own, nil // better than nothing: these are committed
	}
	return res, err
}

// reachesEnd says whether a result goes up to the high watermark of who gave it, which
// is not the partition's where a follower did, or some time ago.
func reachesEnd(res rpc.ReadResult) bool {
	for rest := res.Batches; len(rest) > 0; {
		b, more, err := record.Cut(rest)
		if err != nil {
			break // who reads it says so
		}
		if rest = more; len(rest) == 0 {
			return b.Header().Next() >= res.Bounds.HW
		}
	}
	return true
}

func (r *Router) readLeader(ctx context.Context, at place, q rpc.Read, tail bool) (rpc.ReadResult, error) {
	peer, err := r.peer(q.Partition, at)
	if err != nil {
		return rpc.ReadResult{}, err
	}
	if res, ok := r.recall(at, q, tail); ok {
		return res, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	res, err := peer.Read(ctx, q, 0)
	if err != nil {
		return res, unread(err)
	}
	if tail {
		r.learn(at, q, res)
	}
	return res, nil
}

// Bounds are the leader's.
func (r *Router) Bounds(ctx context.Context, p ident.Partition) (b rpc.Bounds, err error) {
	err = r.ask(ctx, p, func(_ context.Context, _ Peer, found rpc.Bounds) error {
		b = found
		return nil
	})
	return b, err
}

// OffsetAt is the leader's word.
func (r *Router) OffsetAt(ctx context.Context, p ident.Partition, ms int64) (o ident.Offset, err error) {
	err = r.ask(ctx, p, func(ctx context.Context, peer Peer, _ rpc.Bounds) (err error) {
		if peer == nil {
			o, err = r.cfg.Local.OffsetAt(ctx, p, ms)
		} else {
			o, err = peer.OffsetAt(ctx, p, ms)
		}
		return err
	})
	return o, err
}

// EpochEnd is the leader's word.
func (r *Router) EpochEnd(ctx context.Context, p ident.Partition, e ident.Epoch) (o ident.Offset, err error) {
	err = r.ask(ctx, p, func(ctx context.Context, peer Peer, _ rpc.Bounds) (err error) {
		if peer == nil {
			o, err = r.cfg.Local.EpochEnd(p, e)
		} else {
			o, err = peer.EpochEnd(ctx, p, e)
		}
		return err
	})
	return o, err
}

// ask asks the leader, this node where peer is nil, once it has said that it leads. One
// that has yet to hear of it, or does so no more, answers as a follower, of a high
// watermark that readers elsewhere have passed: what they saw would look lost.
func (r *Router) ask(ctx context.Context, p ident.Partition, f func(ctx context.Context, peer Peer, b rpc.Bounds) error) error {
	at, err := r.find(p)
	if err != nil {
		return err
	}
	if at.mine {
		b, err := r.cfg.Local.Bounds(p)
		if err == nil {
			err = begun(p, at, b)
		}
		if err != nil {
			return err
		}
		return f(ctx, nil, b)
	}
	peer, err := r.peer(p, at)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	b, err := peer.Bounds(ctx, p, -1, 0)
	if err == nil {
		err = begun(p, at, b)
	}
	if err == nil {
		err = f(ctx, peer, b)
	}
	return unread(err)
}

// begun says that a node does not lead (yet, or any more) in the epoch that this one
// knows: one of both has to hear of what the other has.
func begun(p ident.Partition, at place, b rpc.Bounds) error {
	if b.Epoch != at.epoch {
		return fault.New(fault.LeaderUnavailable, "partition %d is led in epoch %d, and its leader is asked in %d; try again in a moment", p.Index, b.Epoch, at.epoch)
	}
	return nil
}

// unread is the error of a read that another node did not answer: it may simply
// be asked again.
func unread(err error) error {
	if fault.Is(err, fault.UnknownOutcome) || fault.Is(err, fault.Draining) || fault.Is(err, fault.Fenced) {
		return fault.New(fault.LeaderUnavailable, "the partition's leader did not answer: %w", err)
	}
	return err
}

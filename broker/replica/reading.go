package replica

import (
	"context"
	"errors"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

var errMisplaced = errors.New("the batch is not the next one of this partition")

// heardWithin is how long a follower serves readers after it heard its leader last.
const heardWithin = time.Second

func (r *Replica) wakeLocked() {
	if r.moved != nil {
		close(r.moved)
		r.moved = nil
	}
}

// servesLocked says whether readers are served here: by a leader that knows all that
// is committed, or by an in-sync follower that hears its leader.
func (r *Replica) servesLocked() bool {
	switch {
	case r.stopped != nil || r.halted != nil:
		return false
	case r.leader != nil:
		return r.leader.Settled()
	case r.follower == nil || !r.follower.Agreed():
		return false
	}
	v := r.follower.View()
	return v.InSync(r.cfg.Self) && r.cfg.Now().Sub(r.cfg.Outlet.Heard(v.Leader)) < heardWithin
}

// Bounds of what can be read. They come with an error too.
func (r *Replica) Bounds() (rpc.Bounds, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.boundsLocked()
}

func (r *Replica) boundsLocked() (rpc.Bounds, error) {
	b := rpc.Bounds{Start: r.startLocked(), HW: r.hw, Epoch: r.view.Epoch}
	switch {
	case r.stopped != nil:
		return b, r.stopped
	case r.servesLocked():
		return b, nil
	case r.leader != nil:
		return b, fault.New(fault.LeaderUnavailable, "partition %d of topic %q has a new leader, which waits for its replicas; try again in a moment", r.ref.Index, r.cfg.Topic)
	}
	return b, r.notLed()
}

// Wait returns a channel that is closed once the high watermark is above
// after, or the replica may not serve any more.
func (r *Replica) Wait(after ident.Offset) (<-chan struct{}, error) {
	r.mu.Lock()
	if _, err := r.boundsLocked(); err != nil {
		r.mu.Unlock()
		return nil, err
	}
	if r.hw > after {
		r.mu.Unlock()
		return closed(), nil
	}
	if r.moved == nil {
		r.moved = make(chan struct{})
		r.quiet.Store(false)
	}
	moved := r.moved
	if r.follower == nil {
		r.mu.Unlock()
		return moved, nil
	}
	r.watched = r.cfg.Now()
	r.news.say = !r.watch
	r.unlock()
	return moved, nil
}

func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// Read returns committed batches.
func (r *Replica) Read(_ context.Context, req rpc.Read) (rpc.ReadResult, error) {
	b, err := r.Bounds()
	out := rpc.ReadResult{Bounds: b}
	if err != nil {
		return out, err
	}
	switch {
	case req.Offset < b.Start:
		return out, Expired(r.cfg.Topic, r.ref.Index, req.Offset, b)
	case req.Offset > b.HW:
		return out, fault.New(fault.OffsetNotFound, "partition %d of topic %q ends at offset %d; %d is above it", r.ref.Index, r.cfg.Topic, b.HW, req.Offset).
			With("earliest", b.Start).With("end", b.HW)
	case req.Offset == b.HW:
		if err := r.log.Damage(); err != nil {
			return out, err // what follows is not "nothing"
		}
		return out, nil
	}
	out.Batches, err = r.log.Read(req.Offset, b.HW, req.MaxBytes)
	if fault.Is(err, fault.OffsetExpired) { // retention came in between
		out.Bounds.Start = max(b.Start, r.log.Start())
		return out, Expired(r.cfg.Topic, r.ref.Index, req.Offset, out.Bounds)
	}
	return out, err
}

// Expired is the error for an offset below the log start.
func Expired(topic string, p ident.Index, asked ident.Offset, b rpc.Bounds) error {
	return fault.New(fault.OffsetExpired, "offset %d of partition %d of topic %q is no longer kept; the earliest is %d", asked, p, topic, b.Start).
		With("partition", p).With("requested", asked).With("earliest", b.Start).With("end", b.HW)
}

// OffsetAt finds the first committed offset whose time is at or after ms; the
// high watermark where there is none.
func (r *Replica) OffsetAt(ms int64) (ident.Offset, error) {
	b, err := r.Bounds()
	if err != nil {
		return 0, err
	}
	o, err := r.log.OffsetAt(ms)
	return min(max(o, b.Start), b.HW), err
}

// EpochEnd is where a leader epoch ended, the high watermark for the one that
// still goes on. Only a leader can say that: a follower may know of less than readers
// have seen, also one that others take for the leader, and that has yet to hear of it.
func (r *Replica) EpochEnd(e ident.Epoch) (ident.Offset, error) {
	r.mu.Lock()
	b, err := r.boundsLocked()
	if err == nil && r.leader == nil {
		err = r.notLed()
	}
	r.mu.Unlock()
	if err != nil {
		return 0, err
	}
	if e >= b.Epoch {
		return b.HW, nil
	}
	_, end := r.log.EpochEnd(e)
	return min(end, b.HW), nil
}

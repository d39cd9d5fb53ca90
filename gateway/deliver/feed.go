package deliver

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
)

// feed is the tail of one partition for all its subscriptions.
type feed struct {
	hub   *Hub
	ref   ident.Partition
	topic string
	stop  chan struct{} // closed by the last subscription

	refs int          // guarded by hub.mu
	hw   atomic.Int64 // the high watermark, as far as the feed has heard

	mu      sync.Mutex
	ring    ring
	parking parking
	ended   error // set once: there will be nothing more

	spare []*part // room for the next list of those to wake; only who wakes them looks at it
}

// run follows the partition until its last subscription has gone, ctx ends or
// the topic is deleted.
func (f *feed) run(ctx context.Context) {
	defer f.restart(-1) // lets the ring go
	tail := tail{feed: f, next: -1}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := tail.follow(ctx)
		switch {
		case err == nil: // nobody listens any more
			return
		case ctx.Err() != nil:
			f.end(fault.New(fault.Draining, "the node is shutting down"))
			return
		case fault.Is(err, fault.TopicNotFound) || f.hub.deleted(f.ref.Topic):
			f.end(fault.New(fault.TopicNotFound, "topic %q was deleted", f.topic).With("topic", f.topic))
			return
		case errors.Is(err, record.ErrCorrupt), fault.Lasting(err):
			f.hub.log.Error("a partition can be read no further", "topic", f.topic, "partition", f.ref.Index, "err", err)
			f.end(err)
			return
		}
		if tail.moved {
			tail.moved, tail.warned, pause = false, false, firstPause
		}
		if !tail.warned && !fault.Is(err, fault.LeaderUnavailable) {
			tail.warned = true
			f.hub.log.Warn("cannot read a partition for its readers", "topic", f.topic, "partition", f.ref.Index, "err", err)
		}
		retry := time.NewTimer(pause)
		select {
		case <-retry.C:
		case <-f.stop:
			retry.Stop()
			return
		case <-ctx.Done():
			retry.Stop()
		}
	}
}

// end lets all subscriptions know that there will be nothing more.
func (f *feed) end(err error) {
	f.mu.Lock()
	f.ended = err
	woken := f.restartLocked(f.ring.end)
	f.mu.Unlock()
	f.wake(woken)
}

// publish adds a block to the ring and wakes whom it is for.
func (f *feed) publish(k *block) {
	f.mu.Lock()
	bound := f.hub.ringBound
	if f.hub.ringBytes.Load() > f.hub.ringTotal {
		bound = 0 // all rings together are over their bound: keep the newest block only
	}
	from := f.ring.stand()
	f.hub.ringBytes.Add(int64(f.ring.add(k, bound)))
	woken := f.parking.wanting(k, from, f.spare)
	f.mu.Unlock()
	f.wake(woken)
}

// restart lets the ring go on at another place than it stands.
func (f *feed) restart(at ident.Offset) {
	f.mu.Lock()
	woken := f.restartLocked(at)
	f.mu.Unlock()
	f.wake(woken)
}

// restartLocked returns who is to be woken: all, for what they wait at the end
// of may be another log now.
func (f *feed) restartLocked(at ident.Offset) []*part {
	woken := f.parking.everyone(f.ring.stand(), f.spare)
	f.hub.ringBytes.Add(int64(-f.ring.restart(at)))
	return woken
}

func (f *feed) wake(woken []*part) {
	for _, p := range woken {
		p.sub.ready(p)
	}
	clear(woken) // none of them is kept longer than it lives
	f.spare = woken[:0]
}

// enter lets a reader in, leave out.
func (f *feed) enter(p *part, keys []hashedKey, owned ident.HashRange) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.parking.enter(p, keys, owned)
}

func (f *feed) leave(p *part) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.parking.leave(p)
}

// outlook is what a feed can do for a reader where it stands.
type outlook struct {
	block  *block       // in the ring: read it
	parked bool         // at the end: the reader is woken when there is something for it
	life   int32        // of the ring
	end    ident.Offset // of the ring
	ended  error
}

// at looks up where a reader stands. Nothing is said to a reader that has not
// seen this life of the ring: perhaps the log is another one from there on, and
// a read of the log finds that out.
func (f *feed) at(p *part) outlook {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := outlook{life: f.ring.life, end: f.ring.end, ended: f.ended}
	if f.ended != nil || p.life != f.ring.life {
		return out
	}
	o := p.offset()
	if out.block = f.ring.at(o); out.block == nil && o == f.ring.end {
		f.parking.park(p, false)
		out.parked = true
	}
	return out
}

// park makes a reader wait that has found the log to end where it stands; false
// where the feed has come further meanwhile, or began anew.
func (f *feed) park(p *part, life int32) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended != nil || f.ring.end > p.offset() || f.ring.life != life {
		return false
	}
	f.parking.park(p, p.life != life)
	return true
}

// stand is where a reader stands that is parked, or was when it was last looked
// at: at the ring's end, however far that has moved.
func (f *feed) stand(p *part) stand {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.parking.holds(p) && !p.ahead {
		p.pass(f.ring.stand())
	}
	return stand{p.offset(), p.epoch}
}

// offset is where a reader stands, for others than its owner.
func (f *feed) offset(p *part) ident.Offset {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.parking.holds(p) {
		return max(p.offset(), f.ring.end)
	}
	return p.offset()
}

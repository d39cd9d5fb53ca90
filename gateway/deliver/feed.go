package deliver

import (
	"context"
	"errors"
	"sync"
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

	refs int // guarded by hub.mu

	mu      sync.Mutex
	ring    ring
	waiters []*part // have read all there is
	ended   error   // set once: there will be nothing more
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
	f.hub.ringBytes.Add(int64(-f.ring.restart(f.ring.end)))
	woken := f.takeWaitersLocked()
	f.mu.Unlock()
	wake(woken)
}

// publish adds a block to the ring and wakes whom it may concern.
func (f *feed) publish(k *block) {
	f.mu.Lock()
	bound := f.hub.ringBound
	if f.hub.ringBytes.Load() > f.hub.ringTotal {
		bound = 0 // all rings together are over their bound: keep the newest block only
	}
	f.hub.ringBytes.Add(int64(f.ring.add(k, bound)))
	woken := f.takeWaitersLocked()
	f.mu.Unlock()
	wake(woken)
}

// restart lets the ring go on at another place than it stands.
func (f *feed) restart(at ident.Offset) {
	f.mu.Lock()
	f.hub.ringBytes.Add(int64(-f.ring.restart(at)))
	woken := f.takeWaitersLocked()
	f.mu.Unlock()
	wake(woken)
}

func (f *feed) takeWaitersLocked() []*part {
	woken := f.waiters
	f.waiters = nil
	for _, p := range woken {
		p.waiting = -1
	}
	return woken
}

func wake(parts []*part) {
	for _, p := range parts {
		p.sub.ready(p)
	}
}

// outlook is what a feed can do for a reader at an offset.
type outlook struct {
	block *block // in the ring: read it
	wait  bool   // at the end: the reader is woken when there is more
	life  int    // of the ring
	ended error
}

// at looks an offset up. A reader that has nothing to do is a waiter from then
// on.
func (f *feed) at(p *part, o ident.Offset) outlook {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := outlook{life: f.ring.life, ended: f.ended}
	if f.ended != nil {
		return out
	}
	if out.block = f.ring.at(o); out.block == nil && o == f.ring.end {
		f.parkLocked(p)
		out.wait = true
	}
	return out
}

// park makes a waiter of a reader that has found the log to end at o; false
// where the feed has come further meanwhile, or began anew.
func (f *feed) park(p *part, o ident.Offset, life int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended != nil || f.ring.end > o || f.ring.life != life {
		return false
	}
	f.parkLocked(p)
	return true
}

func (f *feed) parkLocked(p *part) {
	if p.waiting >= 0 {
		return
	}
	p.waiting = len(f.waiters)
	f.waiters = append(f.waiters, p)
}

// leave takes a reader out of the waiters.
func (f *feed) leave(p *part) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := p.waiting; i >= 0 && i < len(f.waiters) && f.waiters[i] == p {
		last := len(f.waiters) - 1
		f.waiters[i] = f.waiters[last]
		f.waiters[i].waiting = i
		f.waiters[last] = nil
		f.waiters = f.waiters[:last]
	}
	p.waiting = -1
}

package worker

import (
	"context"
	"slices"
	"sync"
	"time"

	"tidewire/cmd/tidewire/internal/client"
	"tidewire/internal/sleep"
)

// life is one life of the member: what it holds, and what it works on.
type life struct {
	*Worker
	joined client.Joined
	work   sync.WaitGroup
	slots  chan struct{} // holds a token for each message in hand

	mu     sync.Mutex
	holds  []uint32       // partitions
	hands  map[uint32]int // messages in hand, by partition
	queues map[queue]chan struct{}
}

// queue is a run of messages that are worked on one after the other.
type queue struct {
	partition uint32
	key       string
}

func newLife(w *Worker, joined client.Joined) *life {
	return &life{
		Worker: w, joined: joined, slots: make(chan struct{}, w.cfg.Parallel), holds: joined.Partitions,
		hands: map[uint32]int{}, queues: map[queue]chan struct{}{},
	}
}

// beat says that the member lives, and lets go of what it is to let go of once it has
// nothing of that in hand. It ends the life where that is over.
func (l *life) beat(ctx context.Context, end context.CancelCauseFunc) {
	every, err := time.ParseDuration(l.joined.Heartbeat)
	if err != nil || every <= 0 {
		every = time.Second
	}
	for sleep.For(ctx, every) {
		held, err := l.cfg.Server.Heartbeat(ctx, l.cfg.Topic, l.cfg.Group, l.joined, l.holding())
		switch {
		case err == nil:
			l.told(held)
		case ctx.Err() != nil:
		case fenced(err) || !passing(err):
			end(err)
		default:
			l.cfg.Note("heartbeat: %v", err)
		}
	}
}

func (l *life) holding() []uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.holds)
}

func (l *life) told(h client.Held) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds = slices.Clone(h.Partitions)
	for _, p := range h.Revoke {
		if l.hands[p] > 0 {
			l.holds = append(l.holds, p) // until what is in hand is done
		}
	}
}

// fetch takes messages as there is room for them, until ctx or the life ends.
func (l *life) fetch(ctx, life context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer context.AfterFunc(life, cancel)()
	defer cancel()
	for {
		if !l.room(ctx) {
			return nil
		}
		free := 1 + cap(l.slots) - len(l.slots)
		n := l.wanted(free)
		if n <= 0 {
			<-l.slots
			if done := l.settledAll(ctx); done {
				return errEnough
			}
			continue
		}
		wait := takeWait
		if l.cfg.Idle > 0 {
			wait = min(wait, l.cfg.Idle)
		}
		all, err := l.cfg.Server.Take(ctx, l.cfg.Topic, l.cfg.Group, l.joined, n, wait)
		<-l.slots
		switch {
		case ctx.Err() != nil:
			return nil
		case unheard(err):
			return err // what was leased in the lost answer comes back by joining again
		case err != nil && passing(err):
			l.cfg.Note("%v; trying again", err)
			if !sleep.For(ctx, leastPause) {
				return nil
			}
			continue
		case err != nil:
			return err
		}
		if l.cfg.Each != nil {
			if err := l.page(life, all); err != nil {
				return err
			}
		} else {
			for _, m := range all {
				l.start(life, m)
			}
		}
		if l.quiet(len(all) > 0) {
			return errEnough
		}
	}
}

// room waits for a place for one more message, and takes it.
func (l *life) room(ctx context.Context) bool {
	select {
	case l.slots <- struct{}{}:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// settledAll waits until all that was begun has ended, and says whether that was enough:
// what failed leaves room for others.
func (l *life) settledAll(context.Context) bool {
	l.work.Wait()
	return l.wanted(1) <= 0
}

// start works on a message beside others, after those of its key.
func (l *life) start(ctx context.Context, m client.Leased) {
	l.begun()
	l.slots <- struct{}{} // there is room: no more were asked for
	mine := make(chan struct{})
	var before chan struct{}
	l.mu.Lock()
	l.hands[m.Partition]++
	if m.Key != nil {
		q := queue{m.Partition, *m.Key}
		before, l.queues[q] = l.queues[q], mine
	}
	l.mu.Unlock()
	l.work.Go(func() {
		l.ended(l.one(ctx, m, before))
		l.finished(m, mine)
		<-l.slots
	})
}

func (l *life) finished(m client.Leased, mine chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m.Key != nil {
		if q := (queue{m.Partition, *m.Key}); l.queues[q] == mine {
			delete(l.queues, q)
		}
	}
	close(mine)
	l.hands[m.Partition]--
}

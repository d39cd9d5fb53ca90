package ask

import (
	"context"
	"time"

	"tidewire/internal/inbox"
)

// A process that is stopped for a while (SIGSTOP, a machine that sleeps, a disk that swaps)
// knows nothing of it. Meanwhile others took it for gone, and may have left the first reply
// to a request of its own at the partition's leader. So it notices that it did not run, and
// from then on the leader decides which reply to such a request is the first.

const (
	// beatEvery is how often the loop looks at the clock while there are requests that can
	// be repeated.
	beatEvery = 250 * time.Millisecond
	// mostStill is how late it may be: nobody takes a gateway for gone that soon.
	mostStill = time.Second
)

// watchLocked begins to look at the clock.
func (a *Ask) watchLocked() {
	if a.beat.IsZero() {
		a.beat = time.Now()
		select {
		case a.wake <- struct{}{}:
		default:
		}
	}
}

// beatLocked looks at the clock, and says when to do so again; zero: not before watchLocked.
func (a *Ask) beatLocked(now time.Time) time.Time {
	if len(a.byToken) == 0 {
		a.beat = time.Time{}
		return time.Time{}
	}
	if a.stillLocked(now) {
		for _, k := range a.byToken {
			a.lookElsewhereLocked(k)
		}
	}
	a.beat = now
	return now.Add(beatEvery)
}

// stillLocked says that the process did not run for a while, up to now.
func (a *Ask) stillLocked(now time.Time) bool {
	return !a.beat.IsZero() && now.Sub(a.beat) > mostStill
}

// lookElsewhereLocked puts a request in doubt, and looks for its reply at the leader.
func (a *Ask) lookElsewhereLocked(k *lasting) {
	// Of a repeat that collects elsewhere the record has another inbox.
	if k.doubt || k.accepted.Duplicate || a.draining || a.box.Answered(k.address.Token) {
		return
	}
	k.doubt = true
	if a.collecting >= mostCollecting {
		return // a reply that comes is judged all the same
	}
	timestamp := k.timestamp
	if timestamp == 0 {
		timestamp = time.Now().UnixMilli()
	}
	a.collecting++
	a.running.Go(func() {
		ctx, cancel := context.WithDeadline(a.life, k.until)
		defer cancel()
		if r, err := a.fetch(ctx, k.address, timestamp+k.address.Timeout.Milliseconds(), true); err == nil && r != nil {
			a.put(k.address.Token, r)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.collecting--
	})
}

// doubts says that the leader has to judge whether a reply is the first.
func (a *Ask) doubts(to *inbox.Address) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := a.byToken[to.Token]
	return k != nil && !a.box.Answered(to.Token) && (k.doubt || a.stillLocked(time.Now()))
}

package publish

import (
	"time"

	"tidewire/internal/fault"
)

// expiryGrain is how late an answer to a record whose time is up may be: the
// lane looks once for all that end near one another.
const expiryGrain = 20 * time.Millisecond

// armLocked sees to it that the lane looks for records whose time is up, no
// later than deadline plus the grain.
func (l *lane) armLocked(deadline time.Time) {
	switch {
	case l.expiry == nil:
		l.expiry = time.AfterFunc(time.Until(deadline)+expiryGrain, l.expire)
	case deadline.Before(l.expiryAt):
		l.expiry.Reset(time.Until(deadline) + expiryGrain) // one that has fired just now looks once more
	default:
		return
	}
	l.expiryAt = deadline
}

// expire answers every record whose time is up and arms the timer for the next.
func (l *lane) expire() {
	now := time.Now()
	type late struct {
		waiter // a copy: its batch may end as soon as the lock is free
		err    error
	}
	var over []late
	var next time.Time
	look := func(b *batch, err error) {
		for i := range b.waiters {
			w := &b.waiters[i]
			switch {
			case w.over:
			case w.deadline.After(now):
				if next.IsZero() || w.deadline.Before(next) {
					next = w.deadline
				}
			default:
				w.over = true
				if !w.answered {
					w.answered = true
					over = append(over, late{*w, err})
				}
			}
		}
	}
	l.mu.Lock()
	l.expiry = nil
	notKept := unavailable(l.refusal)
	if b := l.underway; b != nil && (l.atLeader || b.reached) {
		look(b, unknown)
	} else if b != nil {
		look(b, notKept)
	}
	for _, b := range l.waiting {
		look(b, notKept)
	}
	if !next.IsZero() {
		l.armLocked(next)
	}
	l.mu.Unlock()
	for i := range over {
		l.finish(&over[i].waiter, Result{Err: over[i].err})
	}
}

// unknown is the answer to a record whose time is up after it may have reached
// a log.
var unknown = fault.New(fault.UnknownOutcome, "the leader did not answer in time; the record may have been kept: repeat it with the same sequence or Idempotency-Key")

// unavailable is the answer to a record whose time is up before any leader took
// it; refusal is what the leader said last, if it said anything.
func unavailable(refusal error) error {
	if fault.Is(refusal, fault.Throttled) || fault.Is(refusal, fault.NotEnoughReplicas) {
		return refusal
	}
	return fault.New(fault.LeaderUnavailable, "the partition's leader took no record in time; nothing was kept")
}

package sleep

import (
	"context"
	"sync"
	"time"
)

// Alarm calls one function for the first of many times, behind one timer. A time that is
// later than the next call costs nothing: the call comes, finds nothing that is due and says
// when the next one is.
type Alarm struct {
	wake chan struct{} // has one entry when the loop is to look before its timer says so

	mu   sync.Mutex
	next time.Time // of the calls; zero: none comes by itself
}

// NewAlarm makes one that calls nobody before Run.
func NewAlarm() *Alarm { return &Alarm{wake: make(chan struct{}, 1)} }

// Set sees to it that there is a call at a time or before.
func (a *Alarm) Set(at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.next.IsZero() || at.Before(a.next) {
		a.next = at
		select {
		case a.wake <- struct{}{}:
		default: // it is about to look
		}
	}
}

// Run calls look now, whenever a time was set that comes before the next call, and at the time
// that look gave last, which is the first of all that are left, until ctx ends. The zero time
// is never.
func (a *Alarm) Run(ctx context.Context, look func(now time.Time) time.Time) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-a.wake:
		}
		a.begin()
		if at := a.sooner(look(time.Now())); at.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(at))
		}
	}
}

// begin lets whatever is set from here on wake the loop: the look that follows may miss it.
func (a *Alarm) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.next = time.Time{}
}

// sooner is when the next call comes.
func (a *Alarm) sooner(at time.Time) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.next.IsZero() || !at.IsZero() && at.Before(a.next) {
		a.next = at
	}
	return a.next
}

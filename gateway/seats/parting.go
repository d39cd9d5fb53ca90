package seats

import (
	"context"
	"math/rand/v2"
	"time"

	"tidewire/internal/fault"
)

const (
	// DefaultWindow is what the retry_after of a drain is drawn from, at the least.
	DefaultWindow = 5 * time.Second
	// tellRate is how many clients a second hear that their node stops: what each
	// does then meets the work that is still under way.
	tellRate = 5000
	// returnRate is how many clients a second come back, to one node where there is
	// no other: as many as two processors of the slowest kind take in beside their
	// other work.
	returnRate = 1250
	// absence is what a restart takes: who comes sooner finds nobody.
	absence = time.Second
)

// Parting spreads how the clients of a node that stops leave it and come back.
type Parting struct {
	began, ends time.Time // of the telling
	window      time.Duration
}

// Parting begins at the first call, for all transports: with the clients there
// are then. The window for coming back is wide enough for them, and least or more;
// they are told within most.
func (s *Seats) Parting(least, most time.Duration) Parting {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parting == nil {
		n := time.Duration(s.taken)
		now := time.Now()
		s.parting = &Parting{
			began: now, ends: now.Add(min(n*time.Second/tellRate, most)),
			window: max(least, n*time.Second/returnRate),
		}
	}
	return *s.parting
}

// Departing is a parting of clients that have other nodes to go to, while this one
// keeps serving: one for each time that clients are sent away.
func (s *Seats) Departing(least time.Duration) Parting {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := time.Duration(s.taken)
	now := time.Now()
	return Parting{began: now, ends: now.Add(min(n*time.Second/tellRate, longestTelling)), window: max(least, n*time.Second/returnRate)}
}

// longestTelling bounds the telling where a stop has no deadline.
const longestTelling = 30 * time.Second

// PartingWithin is Parting for a drain that ends with ctx: half of its time is for
// telling, the rest is the clients'.
func (s *Seats) PartingWithin(ctx context.Context, least time.Duration) Parting {
	most := longestTelling
	if at, ok := ctx.Deadline(); ok {
		most = max(0, time.Until(at)/2)
	}
	return s.Parting(least, most)
}

// Due is how many of n clients are to be told by now.
func (p Parting) Due(n int, now time.Time) int {
	spread, passed := p.ends.Sub(p.began), now.Sub(p.began)
	if passed >= spread {
		return n
	}
	return min(n, 1+int(float64(n)*float64(passed)/float64(spread)))
}

// tellEvery is how often those are told whose turn it is.
const tellEvery = 10 * time.Millisecond

// Tell tells n clients, one after another: what ten thousand of them do when they
// hear it must not meet what is under way. Those not told when ctx ends are left.
func (p Parting) Tell(ctx context.Context, n int, tell func(i int)) {
	for told := 0; ; {
		for due := p.Due(n, time.Now()); told < due; told++ {
			tell(told)
		}
		if told == n {
			return
		}
		pause := time.NewTimer(tellEvery)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
	}
}

// Return draws when a client that is told now is to come back: not before the
// last one is told and the node had time to start again.
func (p Parting) Return(now time.Time) time.Duration {
	return (max(0, p.ends.Sub(now)) + absence + rand.N(p.window)).Round(time.Millisecond)
}

// Refusal is for a client that comes while the node stops.
func (p Parting) Refusal() error {
	return fault.New(fault.Draining, "the node is shutting down; connect to another, or again in a moment").After(p.Return(time.Now()))
}

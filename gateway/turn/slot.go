package turn

import (
	"sync/atomic"
	"time"
)

// Writer is the writing side of a connection.
type Writer interface {
	// Turn does what there is to do, as far as that goes without waiting.
	Turn(w *Worker) Outcome
}

// Outcome is how a turn ends.
type Outcome uint8

const (
	Rest   Outcome = iota // until it is scheduled
	More                  // there is more to do at once, after others had their turn
	Behind                // the log has to be read
	Kept                  // somebody else goes on with it, and gives it back
)

// Whereabouts of a slot between turns.
const (
	idle int32 = iota
	queued
	running
	again // scheduled while it is running
)

// Slot is a writer's place with the workers, from Crew.Join until Leave. It is in
// one queue at most and has one turn at a time.
type Slot struct {
	writer Writer
	home   *Worker // gives it its turns
	number uint32  // by which work is spread
	at     atomic.Int32
	alarm  alarm // on home's clock
}

// Number is the slot's, by which other work can be spread too.
func (s *Slot) Number() int { return int(s.number) }

// Schedule sees to it that the writer gets a turn that begins after now.
func (s *Slot) Schedule() {
	for {
		switch at := s.at.Load(); at {
		case queued, again:
			return
		case idle:
			if s.at.CompareAndSwap(idle, queued) {
				s.home.add(s)
				return
			}
		case running:
			if s.at.CompareAndSwap(running, again) {
				return
			}
		}
	}
}

// GiveBack ends what somebody had of the writer whose turn ended with Kept.
func (s *Slot) GiveBack(to Outcome) {
	switch to {
	case Rest:
		if s.at.CompareAndSwap(running, idle) {
			return
		}
		fallthrough
	case More:
		s.at.Store(queued)
		s.home.add(s)
	case Behind:
		s.at.Store(queued)
		s.home.crew.logWorkers[s.number%logWorkers].add(s)
	}
}

// Alarm sees to it that the writer has a turn at a time, or before.
func (s *Slot) Alarm(at time.Time) { s.home.clock.set(s, at) }

// Leave lets go of the slot: there are no more alarms. It is for the writer's
// last turn, which ends with Kept.
func (s *Slot) Leave() { s.home.clock.drop(s) }

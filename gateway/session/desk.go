package session

import (
	"tidewire/gateway/deliver"
	"tidewire/gateway/turn"
)

// schedule sees to it that the session gets a turn that begins after now.
func (s *session) schedule() { s.slot.Schedule() }

// giveBack ends what somebody was handed of the session by a turn.
func (s *session) giveBack(to outcome) { s.slot.GiveBack(to) }

// Turn is for the workers.
func (s *session) Turn(w *turn.Worker) turn.Outcome { return s.turn(s.m.desks[w.Number]) }

// outcome is how a turn ends.
type outcome = turn.Outcome

const (
	rest   = turn.Rest
	more   = turn.More
	behind = turn.Behind
	kept   = turn.Kept
)

// desk is what a turn works with, one for each worker; nothing on it outlives the
// turn but what is shared by many.
type desk struct {
	logs    bool   // the log may be read
	frame   []byte // headBytes of room, then lines with newlines between
	control []byte // whole control frames
	head    []byte // of a messages line
	turn    []deliver.Run
	runs    []deliver.Run // in the frame
	common  []byte        // the whole text frame, where it is one that others get too
	shared  sharedFrame
	attempt *turn.Attempt
	tally   *deliver.Tally // told after each round of turns
}

func newDesk(w *turn.Worker, m *deliver.Metrics) *desk {
	d := &desk{logs: w.Logs, frame: make([]byte, headBytes, 2*frameBytes), attempt: &w.Attempt, tally: m.Tally(deliver.WebSocket)}
	w.After(d.tally.Tell)
	return d
}

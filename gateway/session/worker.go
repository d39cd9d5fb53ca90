package session

import (
	"context"
	"sync"
	"sync/atomic"

	"tidewire/gateway/deliver"
)

// A session has no goroutine that writes. What is to be written is found and
// written in turns: whoever has something for a session schedules it, and a
// worker gives it a turn. A turn never waits: not for the socket, which takes
// what it takes at once, and not for the disk, which only the workers for the
// log read. So a few workers serve any number of connections, and an idle one
// costs nothing but its memory.

// Whereabouts of a session between turns. It is in one queue at most and has
// one turn at a time, so what a turn works on needs no lock.
const (
	idle int32 = iota
	queued
	running
	again // scheduled while it is running
)

// schedule sees to it that the session gets a turn that begins after now.
func (s *session) schedule() {
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

// outcome is how a turn ends.
type outcome uint8

const (
	rest   outcome = iota // until it is scheduled
	more                  // there is more to do at once, after others had their turn
	behind                // the log has to be read
	kept                  // somebody else goes on with it, and gives it back
)

// giveBack ends what a turn, or whoever it was handed to, had of the session.
func (s *session) giveBack(to outcome) {
	switch to {
	case rest:
		if s.at.CompareAndSwap(running, idle) {
			return
		}
		fallthrough
	case more:
		s.at.Store(queued)
		s.home.add(s)
	case behind:
		s.at.Store(queued)
		s.m.logWorkers[s.number%logWorkers].add(s)
	}
}

// logWorkers is how many turns may wait for the disk, or for another node, at
// once.
const logWorkers = 8

// worker gives sessions their turns, one after the other.
type worker struct {
	logs  bool // may read the log
	clock clock
	desk  desk

	mu    sync.Mutex
	queue []*session
	wake  chan struct{} // room for one: the queue is not empty, or the clock has changed
}

// desk is what a turn works with; nothing on it outlives the turn but what is
// shared by many.
type desk struct {
	logs    bool
	frame   []byte // headBytes of room, then lines with newlines between
	control []byte // whole control frames
	head    []byte // of a messages line
	turn    []deliver.Run
	runs    []deliver.Run // in the frame
	common  []byte        // the whole text frame, where it is one that others get too
	shared  sharedFrame
	attempt attempt
	tally   *deliver.Tally // told after each round of turns
}

func newWorker(logs bool, m *deliver.Metrics) *worker {
	w := &worker{logs: logs, wake: make(chan struct{}, 1)}
	w.clock.wake = w.signal
	w.desk.logs = logs
	w.desk.frame = make([]byte, headBytes, 2*frameBytes)
	w.desk.attempt.write = w.desk.attempt.run
	w.desk.tally = m.Tally(deliver.WebSocket)
	return w
}

func (w *worker) add(s *session) {
	w.mu.Lock()
	w.queue = append(w.queue, s)
	first := len(w.queue) == 1
	w.mu.Unlock()
	if first {
		w.signal()
	}
}

func (w *worker) signal() {
	select {
	case w.wake <- struct{}{}:
	default: // it is awake already
	}
}

// take swaps the queue for an empty one.
func (w *worker) take(spare []*session) []*session {
	w.mu.Lock()
	defer w.mu.Unlock()
	got := w.queue
	w.queue = spare[:0]
	return got
}

// run gives turns until ctx ends.
func (w *worker) run(ctx context.Context) {
	defer w.clock.stop()
	var batch []*session
	for {
		batch = w.take(batch)
		for i, s := range batch {
			s.at.Store(running)
			s.giveBack(s.turn(&w.desk))
			batch[i] = nil
		}
		w.desk.tally.Tell()
		w.clock.fire()
		if len(batch) > 0 {
			continue
		}
		select {
		case <-w.wake:
		case <-w.clock.next():
		case <-ctx.Done():
			return
		}
	}
}

// place is where a session is between turns; the zero value is idle.
type place = atomic.Int32

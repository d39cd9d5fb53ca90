package turn

import (
	"context"
	"sync"
)

// Worker gives writers their turns, one after the other.
type Worker struct {
	Number  int  // among the workers of its crew, from 0 on
	Logs    bool // may read the log
	Attempt Attempt

	crew  *Crew
	clock clock
	after []func() // each round of turns

	mu    sync.Mutex
	queue []*Slot
	wake  chan struct{} // room for one: the queue is not empty, or the clock has changed
}

func newWorker(c *Crew, number int, logs bool) *Worker {
	w := &Worker{Number: number, Logs: logs, crew: c, wake: make(chan struct{}, 1)}
	w.clock.wake = w.signal
	w.Attempt.write = w.Attempt.run
	return w
}

// After has f called after each round of turns, by whoever gives them. It is for
// those who make something of the workers before these run.
func (w *Worker) After(f func()) { w.after = append(w.after, f) }

func (w *Worker) add(s *Slot) {
	w.mu.Lock()
	w.queue = append(w.queue, s)
	first := len(w.queue) == 1
	w.mu.Unlock()
	if first {
		w.signal()
	}
}

func (w *Worker) signal() {
	select {
	case w.wake <- struct{}{}:
	default: // it is awake already
	}
}

// take swaps the queue for an empty one.
func (w *Worker) take(spare []*Slot) []*Slot {
	w.mu.Lock()
	defer w.mu.Unlock()
	got := w.queue
	w.queue = spare[:0]
	return got
}

// run gives turns until ctx ends.
func (w *Worker) run(ctx context.Context) {
	defer w.clock.stop()
	var batch []*Slot
	for {
		batch = w.take(batch)
		for i, s := range batch {
			s.at.Store(running)
			s.GiveBack(s.writer.Turn(w))
			batch[i] = nil
		}
		for _, f := range w.after {
			f()
		}
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

package turn

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// logWorkers is how many turns may wait for the disk, or for another node, at
// once.
const logWorkers = 8

// Crew is the workers of a node.
type Crew struct {
	workers    []*Worker
	logWorkers [logWorkers]*Worker
	numbers    atomic.Uint32 // of slots
}

// NewCrew makes the workers. It starts nothing.
func NewCrew() *Crew {
	c := &Crew{}
	for range runtime.GOMAXPROCS(0) {
		c.workers = append(c.workers, newWorker(c, len(c.workers), false))
	}
	for i := range c.logWorkers {
		c.logWorkers[i] = newWorker(c, len(c.workers)+i, true)
	}
	return c
}

// Workers are all of them, by their numbers.
func (c *Crew) Workers() []*Worker { return slices.Concat(c.workers, c.logWorkers[:]) }

// Run gives turns until ctx ends, which is after the last writer has left.
func (c *Crew) Run(ctx context.Context) error {
	var working sync.WaitGroup
	for _, w := range c.Workers() {
		working.Go(func() { w.run(ctx) })
	}
	working.Wait()
	return nil
}

// Join gives a writer its slot. The caller has it until GiveBack, so that there is
// no turn before all that a turn needs is there.
func (c *Crew) Join(s *Slot, w Writer) {
	s.writer = w
	s.number = c.numbers.Add(1)
	s.home = c.workers[s.number%uint32(len(c.workers))]
	s.at.Store(running)
}

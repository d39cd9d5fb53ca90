package turn

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"tidewire/gateway/budget"
)

// logWorkers is how many turns may wait for the disk, or for another node, at
// once.
const logWorkers = 8

// Crew is the workers of a node.
type Crew struct {
	workers    []*Worker
	logWorkers [logWorkers]*Worker
	numbers    atomic.Uint32 // of slots
	owed       *budget.Budget
	asleep     *sleepers
}

// owedBytes bounds what the node holds of writes that sockets have not taken, for
// all clients together. Most of it is of clients that read nothing, and each write
// may be as long as a message.
const owedBytes = 256 << 20

// Owe takes n bytes of what the node may hold for clients that do not take them;
// nil: it holds all that it may. The share is to be closed.
func (c *Crew) Owe(n int) *budget.Share {
	share := c.owed.Share()
	if !share.Try(int64(n)) {
		return nil
	}
	return share
}

// NewCrew makes the workers. It starts nothing.
func NewCrew() *Crew {
	c := &Crew{owed: budget.New(owedBytes), asleep: newSleepers()}
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

// Run gives turns and wakes readers until ctx ends, which is after the last writer has left
// and no reader sleeps.
func (c *Crew) Run(ctx context.Context) error {
	var working sync.WaitGroup
	for _, w := range c.Workers() {
		working.Go(func() { w.run(ctx) })
	}
	err := c.asleep.run(ctx)
	working.Wait()
	return err
}

// Join gives a writer its slot. The caller has it until GiveBack, so that there is
// no turn before all that a turn needs is there.
func (c *Crew) Join(s *Slot, w Writer) {
	s.writer = w
	s.number = c.numbers.Add(1)
	s.home = c.workers[s.number%uint32(len(c.workers))]
	s.at.Store(running)
}

package turn

import (
	"context"
	"sync"
	"sync/atomic"
)

// Reader is the reading side of a connection that may sleep: it has no goroutine while
// there is nothing to read.
type Reader interface {
	// Run reads until it sleeps again or the connection has ended.
	Run()
	// Over says that there is no more to wait for: whoever ends a connection first has this
	// say so, and then calls Crew.Wake.
	Over() bool
}

// sleepers are the readers that sleep. Each is woken once: by its socket, by Crew.Wake, or
// because nobody watches the sockets any more, whichever takes it from the set.
type sleepers struct {
	first sync.Once // makes the poll, for the first that wants to sleep
	begun chan struct{}
	poll  *poll // once begun is closed; nil: there is none on this system

	last atomic.Uint64 // of the tickets
	mu   sync.Mutex
	set  map[uint64]sleeper // by ticket; nil: nobody watches any more
}

// sleeper is a reader that sleeps, counted among those who have to end.
type sleeper struct {
	reader Reader
	open   *sync.WaitGroup
}

// wake has it go on.
func (s sleeper) wake() {
	s.open.Go(s.reader.Run)
	s.open.Done()
}

func newSleepers() *sleepers {
	return &sleepers{begun: make(chan struct{}), set: map[uint64]sleeper{}}
}

// Sleep has the reader of a socket run, on a goroutine of its own, once there is something
// to read, be it the end, or it is over. It counts in open from now on, in which its caller
// counts, until it has run. It is false where that cannot be: then the reader has to wait itself.
func (c *Crew) Sleep(s *Socket, r Reader, open *sync.WaitGroup) bool {
	x := c.asleep
	if s.raw == nil || !x.watched() {
		return false
	}
	ticket := x.last.Add(1)
	open.Add(1)
	if !x.put(ticket, sleeper{r, open}) {
		open.Done()
		return false
	}
	s.ticket.Store(ticket)
	if x.poll.arm(s.raw, ticket) != nil {
		if _, mine := x.take(ticket); mine {
			open.Done()
			return false
		}
		return true // somebody else has woken it
	}
	if r.Over() { // perhaps before it slept
		x.wake(ticket)
	}
	return true
}

// Wake wakes the reader of a socket that is over, if it sleeps.
func (c *Crew) Wake(s *Socket) {
	if ticket := s.ticket.Load(); ticket != 0 {
		c.asleep.wake(ticket)
	}
}

// watched says whether sockets can be watched on this system.
func (x *sleepers) watched() bool {
	x.first.Do(func() {
		x.poll = newPoll()
		close(x.begun)
	})
	return x.poll != nil
}

func (x *sleepers) wake(ticket uint64) {
	if s, ok := x.take(ticket); ok {
		s.wake()
	}
}

// put adds to the set; false: nobody would wake it.
func (x *sleepers) put(ticket uint64, s sleeper) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.set == nil {
		return false
	}
	x.set[ticket] = s
	return true
}

// take takes from the set; false: it was woken before.
func (x *sleepers) take(ticket uint64) (sleeper, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s, ok := x.set[ticket]
	delete(x.set, ticket)
	return s, ok
}

// run wakes those whose sockets have something to read, until ctx ends. Should it fail before
// that, all wake and wait themselves from then on.
func (x *sleepers) run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-x.begun:
	}
	if x.poll == nil {
		return nil
	}
	err := x.poll.run(ctx, x.wake)
	x.mu.Lock()
	left := x.set
	x.set = nil
	x.mu.Unlock()
	for _, s := range left {
		s.wake()
	}
	return err
}

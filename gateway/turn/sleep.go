package turn

import (
	"context"
	"sync"
	"sync/atomic"
)

// Reader is the reading side of a connection that may sleep: it has no goroutine while
// there is nothing to read.
type Reader interface {
	// Wake has the reader go on. It does not wait.
	Wake()
}

// sleepers are the readers that sleep. Each is woken once: by its socket or by Crew.Wake,
// whichever takes it from the set.
type sleepers struct {
	first sync.Once // makes the poll, for the first that wants to sleep
	begun chan struct{}
	poll  *poll // once begun is closed; nil: there is none on this system

	last atomic.Uint64 // of the tickets
	mu   sync.Mutex
	set  map[uint64]Reader // by ticket
}

func newSleepers() *sleepers { return &sleepers{begun: make(chan struct{}), set: map[uint64]Reader{}} }

// Sleep has the reader of a socket woken once there is something to read, be it the end, or
// Wake is called. It is false where that cannot be: then the reader has to wait itself.
func (c *Crew) Sleep(s *Socket, r Reader) bool {
	if s.raw == nil {
		return false
	}
	x := c.asleep
	x.first.Do(func() {
		x.poll = newPoll()
		close(x.begun)
	})
	if x.poll == nil {
		return false
	}
	ticket := x.last.Add(1)
	x.mu.Lock()
	x.set[ticket] = r
	x.mu.Unlock()
	s.ticket.Store(ticket)
	if x.poll.arm(s.raw, ticket) == nil {
		return true
	}
	return x.take(ticket) == nil // somebody else has woken it, and with it whoever called
}

// Wake wakes the reader of a socket, if it sleeps.
func (c *Crew) Wake(s *Socket) {
	if ticket := s.ticket.Load(); ticket != 0 {
		c.asleep.wake(ticket)
	}
}

func (x *sleepers) wake(ticket uint64) {
	if r := x.take(ticket); r != nil {
		r.Wake()
	}
}

// take takes a reader from the set; nil: it was woken before.
func (x *sleepers) take(ticket uint64) Reader {
	x.mu.Lock()
	defer x.mu.Unlock()
	r := x.set[ticket]
	delete(x.set, ticket)
	return r
}

// run wakes those whose sockets have something to read, until ctx ends.
func (x *sleepers) run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-x.begun:
	}
	if x.poll == nil {
		return nil
	}
	return x.poll.run(ctx, x.wake)
}

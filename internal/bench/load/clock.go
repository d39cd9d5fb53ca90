package load

import (
	"sync/atomic"
	"time"
)

// clock is the one clock of a load, and when each message was to be sent.
type clock struct {
	epoch time.Time
	plan  atomic.Pointer[schedule] // of an open loop; nil: closed

	// sent has the times of the messages in flight of a closed loop whose
	// deliveries are timed; the number's low bits are the place. nil: not asked for.
	sent []atomic.Int64
}

func newClock() *clock { return &clock{epoch: time.Now()} }

// follow begins an open loop of so many messages a second.
func (c *clock) follow(perSecond float64) {
	plan := newSchedule(c.now(), perSecond)
	c.plan.Store(&plan)
}

// open reports an open loop.
func (c *clock) open() bool { return c.plan.Load() != nil }

// now is the monotonic time since the load began.
func (c *clock) now() int64 { return int64(time.Since(c.epoch)) }

// keep remembers when messages were sent, for so many in flight. Those of
// several subscribers may overtake one another, so there is room for more.
func (c *clock) keep(window int) { c.sent = make([]atomic.Int64, powerOfTwo(16*window)) }

// leave is the time that the latency of a message counts from.
func (c *clock) leave(n, now int64) int64 {
	if plan := c.plan.Load(); plan != nil {
		return plan.when(n)
	}
	if c.sent != nil {
		c.sent[n&int64(len(c.sent)-1)].Store(now)
	}
	return now
}

// left is what leave said of a message.
func (c *clock) left(n int64) int64 {
	if plan := c.plan.Load(); plan != nil {
		return plan.when(n)
	}
	return c.sent[n&int64(len(c.sent)-1)].Load()
}

// powerOfTwo is the least one that is not less than n.
func powerOfTwo(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

package groups

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"tidewire/broker/lease"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/sleep"
)

const (
	// commitEvery is how far apart commits begin at least.
	commitEvery = 15 * time.Millisecond
	// commitPause is how long it waits after a commit of which nobody knows what became,
	// at first.
	commitPause = 20 * time.Millisecond
	// commitHead is more than what a commit takes beside its parts.
	commitHead = 256
)

// gatherer makes one commit of what all units have to say: one under way at a time, the
// first at once, the next as soon as the former is answered, and not more often than every
// commitEvery.
type gatherer struct {
	g    *Groups
	wake chan struct{} // has one entry when there is something to commit

	mu     sync.Mutex
	queued map[*unit]bool
	queue  []*unit // in turn
}

func newGatherer(g *Groups) gatherer {
	return gatherer{g: g, wake: make(chan struct{}, 1), queued: map[*unit]bool{}}
}

// add notes that a unit has something to commit.
func (c *gatherer) add(u *unit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.queued[u] {
		c.queued[u] = true
		c.queue = append(c.queue, u)
	}
	nudge(c.wake)
}

// next takes the unit whose turn it is; nil: there is none.
func (c *gatherer) next() *unit {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		return nil
	}
	u := c.queue[0]
	c.queue = c.queue[1:]
	delete(c.queued, u)
	return u
}

// share is what one unit said in a commit.
type share struct {
	unit  *unit
	m     *lease.Machine
	parts int
}

func (c *gatherer) run(ctx context.Context) error {
	pause := commitPause
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.wake:
		}
		began := time.Now()
		parts, shares := c.gather()
		if len(parts) == 0 {
			continue
		}
		if c.commit(ctx, parts, shares) {
			pause = commitPause
		} else {
			sleep.For(ctx, pause)
			pause = min(2*pause, maxPause)
		}
		sleep.For(ctx, commitEvery-time.Since(began))
	}
}

// gather takes what there is to say, in turn, as much as goes into one commit.
func (c *gatherer) gather() (parts []cluster.CommitOf, shares []share) {
	left := cluster.MaxCommitBytes - commitHead
	for u := c.next(); u != nil; u = c.next() {
		m, of, more := u.delta(left)
		if len(of) > 0 {
			parts = append(parts, of...)
			shares = append(shares, share{u, m, len(of)})
			for i := range of {
				left -= size(&of[i])
			}
			continue
		}
		if more { // it did not fit: first in the next one
			c.mu.Lock()
			if !c.queued[u] {
				c.queued[u] = true
				c.queue = append([]*unit{u}, c.queue...)
			}
			c.mu.Unlock()
			if len(parts) > 0 {
				nudge(c.wake)
			}
			break
		}
	}
	return parts, shares
}

// size is how much of a commit a part takes.
func size(of *cluster.CommitOf) int {
	b, err := json.Marshal(of)
	if err != nil {
		return cluster.MaxCommitBytes // it is made of numbers and names: that cannot be
	}
	return len(b) + 1
}

// delta is what the unit has to say now; more: and that it did not fit.
func (u *unit) delta(budget int) (m *lease.Machine, of []cluster.CommitOf, more bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.m == nil {
		return nil, nil, false
	}
	of = u.m.Delta(budget)
	return u.m, of, u.m.Dirty()
}

// commit asks the coordinator. False: nobody knows what became of it, and it is repeated.
func (c *gatherer) commit(ctx context.Context, parts []cluster.CommitOf, shares []share) bool {
	began := time.Now()
	change := cluster.Change{Commit: &cluster.Commit{Leader: c.g.cfg.Life(), Of: parts}}
	answer, err := c.g.cfg.Coordinator.Propose(ctx, change)
	if err == nil && answer.Refusal != nil {
		err = answer.Refusal.Fault()
	}
	if err != nil {
		if !expected(err) && ctx.Err() == nil {
			c.g.cfg.Logger.Error("the coordinator refuses what consumers acknowledged here; it is asked again", "parts", len(parts), "err", err)
		}
		for _, s := range shares {
			s.unit.unknown(s.m)
		}
		return false
	}
	c.g.metrics.committed(time.Since(began), parts, answer.Taken)
	taken := answer.Taken
	for _, s := range shares {
		n := min(s.parts, len(taken))
		s.unit.committed(s.m, taken[:n])
		taken = taken[n:]
	}
	return true
}

// expected is an error of a coordinator that cannot be reached, or of a life of this node
// that is over: another begins, or what it leads gets other leaders.
func expected(err error) bool {
	return fault.Is(err, fault.CoordinatorUnavailable) || fault.Is(err, fault.UnknownOutcome) || fault.Is(err, fault.Fenced)
}

// committed tells the machine that asked, if it is still there.
func (u *unit) committed(of *lease.Machine, taken []bool) {
	_ = u.with(func(m *lease.Machine, now time.Time) {
		if m == of {
			m.Committed(now, taken)
			u.post.g.letters.add(u, m, m.Letters())
		}
	})
}

func (u *unit) unknown(of *lease.Machine) {
	_ = u.with(func(m *lease.Machine, now time.Time) {
		if m == of {
			m.Unknown(now)
		}
	})
}

// Package connection is the set of a node's long-lived connections, over all
// transports: who holds each, until when, and what passes over it.
//
// One loop serves all of them: it ends each connection whose time is over, exact
// to a tenth of a second, and counts their rates. So a connection costs no timer
// and no goroutine here. What its end looks like is its owner's business.
package connection

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// sampleEvery is how often rates are counted.
	sampleEvery = time.Second
	// sweepGap lies between two sweeps, however many connections end one by one.
	sweepGap = 100 * time.Millisecond
	// share is what the newest second counts in a rate, which so follows the last
	// five or so.
	share = 0.33
)

// Owner serves a connection. Its methods may be called from any goroutine and
// must not wait for the client.
type Owner interface {
	// Reading is how many subscriptions the connection has, and how many records
	// they have still to pass.
	Reading() (subscriptions int, behind int64)
	// Expire ends the connection because its time is over.
	Expire()
	// Dismiss ends it because somebody asked for that.
	Dismiss()
}

// Connection is one of the set. In and Out count records taken in and messages
// written.
type Connection struct {
	In, Out atomic.Int64

	set       *Set
	owner     Owner
	id        string
	transport string
	address   string
	since     time.Time

	// Guarded by the set.
	principal string
	until     time.Time // zero: no end
	in, out   meter
}

// meter is the rate of a counter.
type meter struct {
	last int64
	rate float64
}

func (m *meter) sample(count int64, seconds float64) {
	now := float64(count-m.last) / seconds
	m.last, m.rate = count, m.rate+share*(now-m.rate)
}

// Set is a node's connections. The zero value is not ready; see New.
type Set struct {
	poke chan struct{} // room for one: an end lies before the next sweep

	mu      sync.Mutex
	byID    map[string]*Connection
	sampled time.Time
	next    time.Time // when the loop looks next
}

// New makes an empty set. It starts nothing.
func New() *Set {
	return &Set{byID: map[string]*Connection{}, poke: make(chan struct{}, 1)}
}

// Add makes a connection known until Leave. Its time is over at until, unless
// Identify moves that; zero: never.
func (s *Set) Add(owner Owner, id, transport, address, principal string, until time.Time) *Connection {
	c := &Connection{set: s, owner: owner, id: id, transport: transport, address: address, since: time.Now(), principal: principal, until: until}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byID[id] = c
	s.untilLocked(until)
	return c
}

// Identify says who holds the connection from now on, and until when.
func (c *Connection) Identify(principal string, until time.Time) {
	c.set.mu.Lock()
	defer c.set.mu.Unlock()
	c.principal, c.until = principal, until
	c.set.untilLocked(until)
}

// Leave forgets the connection.
func (c *Connection) Leave() {
	c.set.mu.Lock()
	defer c.set.mu.Unlock()
	delete(c.set.byID, c.id)
}

// untilLocked wakes the loop where an end comes before it would look.
func (s *Set) untilLocked(until time.Time) {
	if until.IsZero() || !until.Before(s.next) {
		return
	}
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

// Run ends connections whose time is over and counts rates until ctx ends.
func (s *Set) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var swept time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.poke:
			timer.Reset(time.Until(swept.Add(sweepGap))) // at once, if that is over
			continue
		case <-timer.C:
		}
		now := time.Now()
		swept = now
		over, next := s.sweep(now)
		for _, c := range over {
			c.owner.Expire()
		}
		timer.Reset(next.Sub(now))
	}
}

// sweep finds the connections whose time is over and when to look again.
func (s *Set) sweep(now time.Time) (over []*Connection, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seconds := now.Sub(s.sampled).Seconds()
	sample := seconds >= sampleEvery.Seconds()
	next = now.Add(sampleEvery)
	for _, c := range s.byID {
		if sample {
			c.in.sample(c.In.Load(), seconds)
			c.out.sample(c.Out.Load(), seconds)
		}
		switch {
		case c.until.IsZero():
		case !now.Before(c.until):
			c.until = time.Time{} // once
			over = append(over, c)
		case c.until.Before(next):
			next = c.until
		}
	}
	if sample {
		s.sampled = now
	}
	if least := now.Add(sweepGap); next.Before(least) {
		next = least
	}
	s.next = next
	return over, next
}

// Info is a connection as others see it.
type Info struct {
	ID, Principal, Transport, Address string

	Since         time.Time
	Subscriptions int
	InRate        float64 // records a second
	OutRate       float64 // messages a second
	Behind        int64   // records still to pass, over all subscriptions
}

// Len is how many there are.
func (s *Set) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byID)
}

// List is every connection, or those of a principal, the oldest first.
func (s *Set) List(principal *string) []Info {
	s.mu.Lock()
	owners := make([]Owner, 0, len(s.byID))
	all := make([]Info, 0, len(s.byID))
	for _, c := range s.byID {
		if principal != nil && c.principal != *principal {
			continue
		}
		owners = append(owners, c.owner)
		all = append(all, Info{
			ID: c.id, Principal: c.principal, Transport: c.transport, Address: c.address, Since: c.since,
			InRate: c.in.rate, OutRate: c.out.rate,
		})
	}
	s.mu.Unlock()
	for i, o := range owners { // outside: owners have locks of their own
		all[i].Subscriptions, all[i].Behind = o.Reading()
	}
	slices.SortFunc(all, func(a, b Info) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID))
	})
	return all
}

// Dismiss ends a connection; false: there is none of that id.
func (s *Set) Dismiss(id string) bool {
	s.mu.Lock()
	c := s.byID[id]
	s.mu.Unlock()
	if c == nil {
		return false
	}
	c.owner.Dismiss()
	return true
}

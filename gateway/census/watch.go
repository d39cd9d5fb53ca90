package census

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"tidewire/gateway/alert"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/sleep"
)

const (
	// lookEvery is how often other nodes are looked at, and mostLooked how many at a
	// time: in a large cluster each takes its turn, so that what all nodes ask of one
	// another grows as their number, not as its square.
	lookEvery  = time.Second
	mostLooked = 16
	// evaluateEvery is how often alerts are evaluated where nothing changes, and
	// leastPause how long one evaluation is from the next where all does. In a cluster
	// of so many partitions that an evaluation takes its time, it is evaluatePart of it,
	// but mostPause at most.
	evaluateEvery = 500 * time.Millisecond
	leastPause    = 50 * time.Millisecond
	mostPause     = 2 * time.Second
	evaluatePart  = 20
	// StaleAfter is how long no coordinator has been heard once what the cluster was
	// last known to be says nothing of who lives.
	StaleAfter = 2 * time.Second
	// laterBy is by how much another node must have heard a coordinator later than this
	// one: less may be the way that news take.
	laterBy = 2 * time.Second
)

// report is what a node said when it was looked at last.
type report struct {
	alert.Report
	heard time.Time // when it last heard a coordinator
}

func reportOf(f Figures, now time.Time) report {
	return report{alert.Report{Free: f.Disk.Free, Least: f.Disk.Least, Corrupt: f.Corrupt, Paused: f.Paused}, now.Add(-f.FeedAge)}
}

// Run looks at the other nodes and evaluates alerts until ctx ends.
func (c *Census) Run(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error {
		for c.look(ctx); sleep.For(ctx, lookEvery); c.look(ctx) {
			continue
		}
		return nil
	})
	g.Go(func() error { return c.watch(ctx) })
	return g.Wait()
}

// look asks some of the others what they have to say of themselves.
func (c *Census) look(ctx context.Context) {
	others := c.others(c.cfg.Topology.Snapshot())
	some := others
	c.mu.Lock()
	if len(others) > mostLooked {
		some = make([]ident.NodeID, mostLooked)
		for i := range some {
			some[i] = others[(c.turn+i)%len(others)]
		}
		c.turn = (c.turn + mostLooked) % len(others)
	}
	c.mu.Unlock()
	answers := c.ask(ctx, some)
	if ctx.Err() != nil {
		return // they had no time to answer
	}
	now := time.Now()
	known := map[ident.NodeID]bool{c.cfg.Self: true}
	for _, id := range others {
		known[id] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range some {
		f, answered := answers[id]
		if answered {
			c.reports[id] = reportOf(f, now)
		} else {
			delete(c.reports, id)
		}
		c.silent[id] = !answered
	}
	for id := range c.silent {
		if !known[id] {
			delete(c.reports, id)
			delete(c.silent, id)
		}
	}
	c.reports[c.cfg.Self] = reportOf(c.Own(), now)
}

// watch evaluates alerts whenever something changes, and when one is due.
func (c *Census) watch(ctx context.Context) error {
	before := time.Duration(0)
	for index := uint64(0); ; {
		began := time.Now()
		s, due := c.evaluate(began)
		index = s.Index
		took := time.Since(began)
		// The quicker of two is what one costs: the other may have waited for a core.
		if !sleep.For(ctx, min(mostPause, max(leastPause, evaluatePart*min(took, before)))) {
			return nil
		}
		before = took
		wait := evaluateEvery
		if !due.IsZero() {
			wait = min(wait, time.Until(due))
		}
		if err := c.changed(ctx, index, wait); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// changed waits until the cluster has changed, or for so long.
func (c *Census) changed(ctx context.Context, index uint64, wait time.Duration) error {
	if c.cfg.Changes == nil {
		sleep.For(ctx, wait)
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if _, err := c.cfg.Changes.Next(limited, index); err != nil && limited.Err() == nil {
		return err
	}
	return nil
}

// evaluate tells the alerts what is known, and when the next one is due.
func (c *Census) evaluate(now time.Time) (s *cluster.Snapshot, due time.Time) {
	s = c.cfg.Topology.Snapshot()
	in := alert.Input{Snapshot: s, Reports: map[ident.NodeID]alert.Report{}, Stale: c.Age() > StaleAfter, Silent: map[ident.NodeID]bool{}}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, r := range c.reports {
		in.Reports[id] = r.Report
	}
	for id, silent := range c.silent {
		in.Silent[id] = silent
	}
	due = c.alerts.Observe(now, in)
	for name, n := range c.alerts.Firing() {
		c.firing.WithLabelValues(name).Set(float64(n))
	}
	return s, due
}

// Alerts are those that fire, and those that resolved lately.
func (c *Census) Alerts() []alert.Alert {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.alerts.List()
}

// Age is how long ago this node heard a coordinator that hears the one that leads.
func (c *Census) Age() time.Duration { return c.cfg.Age() }

// CutOff says why clients are better served by other gateways; empty: they are not. No
// coordinator has been heard for a while, though another node has heard one, or none of
// the other gateways answers. Where all of them are as deaf, the coordinators are down, and
// each serves what is there.
func (c *Census) CutOff() (why string) {
	age := c.Age()
	if age <= StaleAfter {
		return ""
	}
	heard := time.Now().Add(-age)
	s := c.cfg.Topology.Snapshot()
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, r := range c.reports {
		if id != c.cfg.Self && r.heard.After(heard.Add(laterBy)) {
			return "though another node hears one"
		}
	}
	others, silent := 0, 0
	for id, quiet := range c.silent {
		if n := s.Nodes[id]; n != nil && n.Gateway() {
			others++
			if quiet {
				silent++
			}
		}
	}
	if others > 0 && silent == others {
		return "and no other gateway answers"
	}
	return ""
}

package load

import (
	"context"
	"fmt"
	"time"

	"tidewire/internal/bench/figure"
	"tidewire/internal/bench/proc"
)

// Plan is how a load is measured: so many runs, back to back, on the same
// connections.
type Plan struct {
	Warmup   time.Duration
	Duration time.Duration // of a run
	Runs     int
}

// stallTimeout ends a load to which nothing comes back any more.
const stallTimeout = 15 * time.Second

// meter cuts the time of a load into runs.
type meter struct {
	crew *crew
	recs []*recorder
	pids []int // of the server; none: not known
	// beside is of a publisher whose load is its deliveries: what was refused and
	// how late it was counts, the rest does not. nil: none.
	beside *recorder
	// stalled says more about a load to which nothing comes back.
	stalled func() string
}

// runs measures a load that is going on already.
func (m *meter) runs(plan Plan, p Progress) ([]figure.Run, error) {
	if err := m.wait("warming up", plan.Warmup, p); err != nil {
		return nil, err
	}
	all := make([]figure.Run, 0, plan.Runs)
	for i := range plan.Runs {
		run, err := m.one(i+1, plan, p)
		if err != nil {
			return all, err
		}
		all = append(all, run)
	}
	return all, nil
}

func (m *meter) one(number int, plan Plan, p Progress) (figure.Run, error) {
	m.take() // what came before the run
	began := time.Now()
	self, server, err := m.sample()
	if err != nil {
		return figure.Run{}, err
	}
	if err := m.wait(fmt.Sprintf("run %d of %d", number, plan.Runs), plan.Duration, p); err != nil {
		return figure.Run{}, err
	}
	count := m.take()
	took := time.Since(began)
	selfAfter, serverAfter, err := m.sample()
	if err != nil {
		return figure.Run{}, err
	}
	var used *proc.Sample
	if len(m.pids) > 0 {
		d := serverAfter.Sub(server)
		used = &d
	}
	return figure.NewRun(number, took, count, used, selfAfter.Sub(self)), nil
}

func (m *meter) sample() (self, server proc.Sample, err error) {
	for _, pid := range m.pids {
		s, err := proc.Read(pid)
		if err != nil {
			return self, server, fmt.Errorf("the server: %w", err)
		}
		server = server.Add(s)
	}
	self, err = proc.Read(proc.Self())
	return self, server, err
}

// take gives what was counted since the last one.
func (m *meter) take() figure.Count {
	t := newTotals()
	for _, r := range m.recs {
		r.take(t)
	}
	c := t.read()
	if m.beside != nil {
		t := newTotals()
		m.beside.take(t)
		b := t.read()
		c.Refused, c.Late = b.Refused, b.Late
	}
	return c
}

// wait lets the load go on for a while, and ends it where it does not.
func (m *meter) wait(what string, d time.Duration, p Progress) error {
	const step = 100 * time.Millisecond
	p.Phase(what, int(d/step))
	tick := time.NewTicker(step)
	defer tick.Stop()
	end := time.NewTimer(d)
	defer end.Stop()
	began, last, moved := time.Now(), time.Now(), m.moved()
	for {
		select {
		case <-m.crew.ctx.Done():
			return context.Cause(m.crew.ctx)
		case <-end.C:
			return nil
		case now := <-tick.C:
			p.Step(int(now.Sub(began) / step))
			if n := m.moved(); n != moved {
				moved, last = n, now
			} else if now.Sub(last) > stallTimeout {
				return fmt.Errorf("nothing has come back for %s: %s", stallTimeout, m.stalled())
			}
		}
	}
}

func (m *meter) moved() (n int64) {
	for _, r := range m.recs {
		n += r.moved.Load()
	}
	return n
}

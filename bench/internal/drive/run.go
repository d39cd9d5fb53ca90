package drive

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tidewire/bench/internal/figures"
	"tidewire/bench/internal/plan"
	"tidewire/internal/bench/child"
	"tidewire/internal/bench/load"
)

const (
	// startLimit bounds the start of all systems of a scenario.
	startLimit = 90 * time.Second
	// freeTime is how long a system has to give memory back that it was asked for.
	freeTime = 3 * time.Second
	// warmConnections come and go before those that are counted.
	warmConnections = 200
)

// Scenario starts its systems, puts its cases to them in turns, and stops them. A system
// that cannot start and a run that fails are noted, and the rest goes on.
func (w World) Scenario(ctx context.Context, s plan.Scenario, repetitions int, into figures.Results, say func(format string, args ...any)) {
	run := &scenario{world: w, say: say, into: into, systems: map[plan.System]system{}, faults: map[plan.System]error{}}
	defer run.stop()
	for _, name := range s.Systems() {
		if w.Missing(name) == "" {
			run.start(ctx, name)
		}
	}
	for _, c := range s.Cases {
		if c.Kind == plan.Idle {
			run.idle(ctx, c, repetitions)
			continue
		}
		for turn := range repetitions {
			for _, name := range plan.Order(c.Systems, turn) {
				if w.Missing(name) == "" && ctx.Err() == nil {
					into.Add(c.Name, name, run.one(ctx, c, name, turn))
				}
			}
		}
	}
}

type scenario struct {
	world   World
	say     func(string, ...any)
	into    figures.Results
	systems map[plan.System]system
	faults  map[plan.System]error // of a start
}

func (s *scenario) start(ctx context.Context, name plan.System) {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, errors.New("it took too long to start"))
	defer cancel()
	x := s.world.make(name)
	s.systems[name] = x
	if s.faults[name] = x.start(ctx); s.faults[name] != nil {
		s.say("%s does not start: %v", name, s.faults[name])
		x.stop()
	}
}

// one is one run. A system that has died is started again for the next.
func (s *scenario) one(ctx context.Context, c plan.Case, name plan.System, turn int) figures.Sample {
	if s.faults[name] != nil || dead(s.systems[name].processes()) {
		s.systems[name].stop()
		if s.start(ctx, name); s.faults[name] != nil {
			return figures.Failed(s.faults[name])
		}
	}
	unix.Sync() // what others have written is on the disk before this one's time counts
	bound, cancel := context.WithTimeoutCause(ctx, c.Limit(), errors.New("it took too long"))
	defer cancel()
	x, err := s.systems[name].measure(bound, c, turn)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			err = context.Cause(bound)
		}
		s.say("%-24s %-14s %d: FAILED: %v", c.Name, name, turn+1, err)
		return figures.Failed(err)
	}
	s.say("%-24s %-14s %d: %s", c.Name, name, turn+1, short(x))
	return x
}

func short(x figures.Sample) (text string) {
	for _, m := range slices.Sorted(maps.Keys(x.Values)) {
		text += fmt.Sprintf("%s %v; ", m, figures.Round(x.Values[m]))
	}
	return text
}

func dead(all []*child.Process) bool {
	return len(all) == 0 || slices.ContainsFunc(all, func(p *child.Process) bool {
		select {
		case <-p.Exited():
			return true
		default:
			return false
		}
	})
}

// idle opens the connections of all systems, lets all stand together, and looks at their
// memory. What a system has held once it holds again more cheaply, so each repetition
// has new processes.
func (s *scenario) idle(ctx context.Context, c plan.Case, repetitions int) {
	for turn := range repetitions {
		if turn > 0 {
			s.stop()
			for _, name := range c.Systems {
				s.start(ctx, name)
			}
		}
		s.idleOnce(ctx, c, turn)
	}
}

func (s *scenario) idleOnce(ctx context.Context, c plan.Case, turn int) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Limit()+time.Duration(len(c.Systems))*30*time.Second, errors.New("it took too long"))
	defer cancel()
	before, held := map[plan.System]int64{}, map[plan.System]*load.Held{}
	for _, name := range plan.Order(c.Systems, turn) {
		x := s.systems[name]
		if s.faults[name] != nil {
			s.into.Add(c.Name, name, figures.Failed(s.faults[name]))
			continue
		}
		h, err := holdWarm(ctx, x, c, turn, func() { before[name] = resident(children(x.processes()).pids()) })
		if err != nil {
			s.say("%-24s %-14s %d: FAILED: %v", c.Name, name, turn+1, err)
			s.into.Add(c.Name, name, figures.Failed(err))
			continue
		}
		defer h.Cut()
		held[name] = h
	}
	wait(ctx, c.Duration)
	for name := range held {
		if name != plan.Tidewire {
			for _, p := range s.systems[name].processes() {
				_ = p.Signal(syscall.SIGUSR1) // that it is gone shows below
			}
		}
	}
	wait(ctx, freeTime)
	for _, name := range plan.Order(c.Systems, turn) {
		h, ok := held[name]
		if !ok {
			continue
		}
		x := figures.Sample{}
		if gone, why := h.Gone(); gone > 0 {
			x = figures.Failed(fmt.Errorf("%d connections ended: %w", gone, why))
		} else {
			now := resident(children(s.systems[name].processes()).pids())
			x.Values = map[plan.Metric]float64{plan.RSS: float64(now-before[name]) / float64(c.Subscribers)}
		}
		s.say("%-24s %-14s %d: %s%s", c.Name, name, turn+1, short(x), x.Err)
		s.into.Add(c.Name, name, x)
	}
}

// holdWarm opens the connections behind a few that came and went: what a first connection
// costs, as the pages of code that nobody had used yet, is nobody's share of memory.
func holdWarm(ctx context.Context, x system, c plan.Case, turn int, warm func()) (*load.Held, error) {
	few := c
	few.Subscribers = min(c.Subscribers, warmConnections)
	few.Name += "-warm"
	h, err := x.hold(ctx, few, turn)
	if err != nil {
		return nil, err
	}
	h.Cut()
	warm()
	return x.hold(ctx, c, turn)
}

// wait lets time pass.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (s *scenario) stop() {
	var wg sync.WaitGroup
	for _, x := range s.systems {
		wg.Go(x.stop)
	}
	wg.Wait()
}

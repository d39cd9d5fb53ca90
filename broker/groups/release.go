package groups

import (
	"context"
	"maps"
	"slices"
	"sync"

	"tidewire/internal/cluster"
	"tidewire/internal/sleep"
)

// releases lets go of partitions that have to go to another owner, those of one moment
// together.
type releases struct {
	g    *Groups
	wake chan struct{} // has one entry when there is one

	mu sync.Mutex
	of map[*unit]cluster.ReleaseOf
}

func newReleases(g *Groups) releases {
	return releases{g: g, wake: make(chan struct{}, 1), of: map[*unit]cluster.ReleaseOf{}}
}

// add notes that nothing of a partition is leased any more.
func (r *releases) add(u *unit, of cluster.ReleaseOf) {
	r.mu.Lock()
	r.of[u] = of
	r.mu.Unlock()
	nudge(r.wake)
}

// again notes what is to be said once more, unless something newer is.
func (r *releases) again(u *unit, of cluster.ReleaseOf) {
	r.mu.Lock()
	if _, newer := r.of[u]; !newer {
		r.of[u] = of
	}
	r.mu.Unlock()
	nudge(r.wake)
}

func (r *releases) take() (some map[*unit]cluster.ReleaseOf) {
	r.mu.Lock()
	defer r.mu.Unlock()
	some = map[*unit]cluster.ReleaseOf{}
	for u, of := range r.of {
		if len(some) == cluster.MaxRelease {
			nudge(r.wake)
			break
		}
		some[u] = of
		delete(r.of, u)
	}
	return some
}

func (r *releases) run(ctx context.Context) error {
	pause := commitPause
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-r.wake:
		}
		some := r.take()
		if len(some) == 0 {
			continue
		}
		change := cluster.Release{}
		units := slices.Collect(maps.Keys(some))
		for _, u := range units {
			change.Of = append(change.Of, some[u])
		}
		answer, err := r.g.cfg.Coordinator.Propose(ctx, cluster.Change{Release: &change})
		if err == nil {
			pause = commitPause
			for i, u := range units {
				if i >= len(answer.Taken) || !answer.Taken[i] {
					u.unreleased(some[u])
				}
			}
			continue
		}
		if !expected(err) && ctx.Err() == nil {
			r.g.cfg.Logger.Error("the coordinator refuses that partitions are released; it is asked again", "partitions", len(change.Of), "err", err)
		}
		for u, of := range some { // twice does no harm
			if !u.over() {
				r.again(u, of)
			}
		}
		sleep.For(ctx, pause)
		pause = min(2*pause, maxPause)
	}
}

// unreleased takes in that a release was not taken: what it rested on is over, and the feed
// brings it, or the next look tries again.
func (u *unit) unreleased(of cluster.ReleaseOf) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.released == of {
		u.released = cluster.ReleaseOf{}
	}
}

package groups

import (
	"context"
	"maps"
	"slices"
	"sync"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/sleep"
)

// releases lets go of partitions that have to go to another owner, those of one moment
// together.
type releases struct {
	g    *Groups
	wake chan struct{} // has one entry when there is one

	mu sync.Mutex
	of map[*unit]ident.Assignment
}

func newReleases(g *Groups) releases {
	return releases{g: g, wake: make(chan struct{}, 1), of: map[*unit]ident.Assignment{}}
}

// add notes that nothing of an assignment is leased any more.
func (r *releases) add(u *unit, epoch ident.Assignment) {
	r.mu.Lock()
	r.of[u] = epoch
	r.mu.Unlock()
	nudge(r.wake)
}

func (r *releases) take() (some map[*unit]ident.Assignment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	some = map[*unit]ident.Assignment{}
	for u, epoch := range r.of {
		if len(some) == cluster.MaxRelease {
			nudge(r.wake)
			break
		}
		some[u] = epoch
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
			change.Of = append(change.Of, cluster.ReleaseOf{Group: u.id, Partition: u.post.ref.Index, Epoch: some[u], Drained: true})
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
		for u, epoch := range some { // twice does no harm
			if !u.over() {
				r.add(u, epoch)
			}
		}
		sleep.For(ctx, pause)
		pause = min(2*pause, maxPause)
	}
}

// unreleased takes in that a release was not taken: what it rested on is over, and the feed
// brings it, or the next look tries again.
func (u *unit) unreleased(epoch ident.Assignment) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.released == epoch {
		u.released = 0
	}
}

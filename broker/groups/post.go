package groups

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
	"tidewire/internal/sleep"
)

const (
	// lookEvery is how often units are looked at where nothing else makes them: for what
	// retention took, and whether they are still needed.
	lookEvery = 5 * time.Second
	// retryPause is how long it waits after what cannot be done yet: read a progress, or a
	// log whose new leader waits for its replicas. It doubles up to maxPause.
	retryPause = 20 * time.Millisecond
	maxPause   = time.Second
	// progressLimit bounds one read of progress.
	progressLimit = 5 * time.Second
)

// post is a partition that this node leads, in one leader epoch.
type post struct {
	g     *Groups
	ref   ident.Partition
	epoch ident.Epoch
	since time.Time     // when this node heard that it leads
	over  chan struct{} // closed when it does not any more
	wake  chan struct{} // has one entry when the watch is to look at the units

	// looking says that the watch has an eye on the log. It looks at all who wait when
	// that moves: who came since has looked himself.
	looking atomic.Bool

	mu       sync.Mutex
	ended    bool
	units    map[ident.GroupID]*unit
	watching bool
	loading  bool
}

func newPost(g *Groups, ref ident.Partition, epoch ident.Epoch, now time.Time) *post {
	return &post{g: g, ref: ref, epoch: epoch, since: now, over: make(chan struct{}), wake: make(chan struct{}, 1), units: map[ident.GroupID]*unit{}}
}

// end gives everything up; why is what those hear who wait.
func (p *post) end(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	close(p.over)
	for id, u := range p.units {
		u.end(why)
		delete(p.units, id)
	}
}

// alone is from when on no former leader gives leases; zero: there was none.
func (p *post) alone() time.Time {
	if p.epoch <= 1 {
		return time.Time{}
	}
	return p.since.Add(p.g.cfg.Handover)
}

// bounds of the log, if it is the one that is led here in this epoch.
func (p *post) bounds() (rpc.Bounds, error) {
	b, err := p.g.cfg.Partitions.Bounds(p.ref)
	if err == nil && b.Epoch != p.epoch {
		err = notLed(p.ref)
	}
	return b, err
}

// unit finds a group's unit.
func (p *post) unit(id ident.GroupID) *unit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.units[id]
}

// attend makes a unit of a group that has something to do without members.
func (p *post) attend(group *cluster.Group) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended && p.units[group.ID] == nil {
		p.addLocked(group)
	}
}

func (p *post) addLocked(group *cluster.Group) {
	p.units[group.ID] = newUnit(p, group)
	if !p.watching {
		p.watching = true
		p.g.tasks.add(p.watch)
	}
	nudge(p.wake)
}

// watch looks after the units as long as there are some.
func (p *post) watch(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	all := true // whether all are looked at, or those at which somebody waits
	pause := retryPause
	for {
		units, ok := p.working()
		if !ok {
			return
		}
		var moved <-chan struct{}
		var again <-chan time.Time
		p.looking.Store(true)
		b, err := p.bounds()
		waits := false
		for _, u := range units {
			if err == nil && (all || u.waited.Load() > 0) {
				u.look(ctx, b)
			}
			waits = waits || u.waited.Load() > 0
		}
		if !waits {
			p.looking.Store(false) // who comes from here on wakes it
			waits = slices.ContainsFunc(units, func(u *unit) bool { return u.waited.Load() > 0 })
		}
		if err == nil && waits {
			moved, err = p.g.cfg.Partitions.Wait(p.ref, b.HW)
		}
		if err != nil { // it leads, and cannot serve yet
			again = time.After(pause)
			pause = min(2*pause, maxPause)
		} else {
			pause = retryPause
		}
		all = false
		select {
		case <-moved:
		case <-again:
		case <-p.wake:
		case <-tick.C:
			all = true
		case <-p.over:
			return
		case <-ctx.Done():
			return
		}
	}
}

// working are the units of the moment; false: there are none, and the watch is over. Those
// without a progress get one.
func (p *post) working() ([]*unit, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	units := make([]*unit, 0, len(p.units))
	for id, u := range p.units {
		if u.over() {
			delete(p.units, id)
			continue
		}
		if u.machine() == nil && !p.loading {
			p.loading = true
			p.g.tasks.add(p.load)
		}
		units = append(units, u)
	}
	p.watching = len(units) > 0
	return units, p.watching
}

// load reads the progress of units that have none, those of one moment together.
func (p *post) load(ctx context.Context) {
	pause := retryPause
	for {
		some := p.unloaded(cluster.MaxProgress)
		if len(some) == 0 || ctx.Err() != nil {
			return
		}
		if err := p.loadSome(ctx, some); err != nil {
			p.g.cfg.Logger.Debug("the progress of groups cannot be read yet", "topic_id", p.ref.Topic, "partition", p.ref.Index, "err", err)
			if !sleep.For(ctx, pause) {
				return
			}
			pause = min(2*pause, maxPause)
			continue
		}
		pause = retryPause
	}
}

// unloaded are units without a machine. None: the load is over.
func (p *post) unloaded(most int) (some []*unit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, u := range p.units {
		if len(some) < most && u.machine() == nil && !u.over() {
			some = append(some, u)
		}
	}
	p.loading = len(some) > 0
	return some
}

func (p *post) loadSome(ctx context.Context, some []*unit) error {
	ids := make([]ident.GroupID, len(some))
	for i, u := range some {
		ids[i] = u.id
	}
	all, err := p.progress(ctx, ids)
	if err != nil {
		return err
	}
	b, err := p.bounds()
	if err != nil {
		return err
	}
	var late error
	for _, u := range some {
		if of, ok := all[u.id]; !ok || !u.begin(of, b) {
			late = fault.New(fault.LeaderUnavailable, "group %q was moved or deleted meanwhile", u.name)
		}
	}
	return late
}

// progress reads what groups have done here, as of a snapshot that says that this node
// leads: since that nobody else can commit.
func (p *post) progress(ctx context.Context, ids []ident.GroupID) (map[ident.GroupID]cluster.GroupProgress, error) {
	ctx, cancel := context.WithTimeout(ctx, progressLimit)
	defer cancel()
	s := p.g.known()
	if !clamped(s, p.ref) {
		return nil, fault.New(fault.LeaderUnavailable, "partition %d may have lost records, and has yet to say what its groups can have counted; try again in a moment", p.ref.Index)
	}
	p.g.metrics.loads.Inc()
	all, err := p.g.cfg.Coordinator.Progress(ctx, cluster.ProgressOf{Partition: p.ref, After: s.Index, Groups: ids})
	if err != nil {
		return nil, err
	}
	out := make(map[ident.GroupID]cluster.GroupProgress, len(all))
	for _, of := range all {
		out[of.Group] = of
	}
	return out, nil
}

// clamped says that no group has counted records that the partition lost.
func clamped(s *cluster.Snapshot, ref ident.Partition) bool {
	t := s.ByID[ref.Topic]
	if t == nil {
		return false
	}
	p, ok := t.Partition(ref.Index)
	return ok && p.Unclamped == 0
}

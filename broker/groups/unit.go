package groups

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tidewire/broker/lease"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// pokeAgain is how long one who was told that there is something has to take it, before
// another is told.
const pokeAgain = 50 * time.Millisecond

var errLoading = fault.New(fault.LeaderUnavailable, "the group's progress is being read; try again")

// unit is one group on one partition that is led here.
type unit struct {
	post        *post
	id          ident.GroupID
	name        string
	waited      atomic.Int32 // takers
	recordBytes atomic.Int64 // of one, about, by what was read last; 0: nothing was

	mu       sync.Mutex
	group    *cluster.Group
	m        *lease.Machine // nil: its progress has yet to be read
	begun    bool           // there was a machine before
	pauses   bool           // too many records are not done
	moved    bool           // the group was moved to other offsets while this unit was there
	err      error          // why it is over
	loaded   chan struct{}  // closed when there is a machine, or it is over
	takers   []waiting      // in turn
	settling map[lease.Token]chan lease.Answer
	unread   time.Time         // until then the log is not read for those who wait: it failed
	released cluster.ReleaseOf // the latest that was to be released
	deadline due[*unit]        // of timers
}

// taker is a Take that waits, at one unit or more.
type taker struct {
	by   cluster.MemberLife
	poke chan struct{} // has one entry when there may be something
	// full says that it holds as many records as it may, of all units together: only less
	// of them is news.
	full atomic.Bool
}

// waiting is a taker at one unit, and how many records it held there at the latest look,
// since it is full.
type waiting struct {
	*taker
	held int
}

func newUnit(p *post, group *cluster.Group) *unit {
	u := &unit{post: p, id: group.ID, name: group.Name, group: group, loaded: make(chan struct{}), settling: map[lease.Token]chan lease.Answer{}}
	u.deadline.of = u
	return u
}

func (u *unit) machine() *lease.Machine {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.m
}

func (u *unit) over() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err != nil
}

// isReady says that there is a machine, or it is over.
func (u *unit) isReady() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.m != nil || u.err != nil
}

// ready waits until there is a machine, or it is over, but not beyond a moment.
func (u *unit) ready(ctx context.Context, by time.Time) {
	u.mu.Lock()
	loaded := u.loaded
	u.mu.Unlock()
	select {
	case <-loaded:
		return
	default:
	}
	timer := time.NewTimer(time.Until(by))
	defer timer.Stop()
	select {
	case <-loaded:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// begin makes the machine of a progress. False: the group is another by now.
func (u *unit) begin(of cluster.GroupProgress, b rpc.Bounds) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err != nil || u.m != nil {
		return true
	}
	now := time.Now()
	cfg := u.post.config()
	if cfg.First = u.moved; u.begun && now.After(cfg.Alone) {
		cfg.Alone = now // the machine before gave leases
	}
	m := lease.Begin(now, cfg, u.group, of, b.Start, b.HW)
	if m.Over() {
		return false
	}
	u.m, u.begun, u.moved = m, true, false
	close(u.loaded)
	u.post.g.letters.add(u, m, m.Letters())
	u.pokeAllLocked()
	u.afterLocked(now)
	return true
}

// config is what the machines of this post have in common. Letters without a key go to
// the first partition of the dead-letter topic.
func (p *post) config() lease.Config {
	return lease.Config{Partition: p.ref.Index, Leader: p.epoch, Alone: p.alone()}
}

// see takes in the group as it is now.
func (u *unit) see(group *cluster.Group) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.moved = u.moved || group.Reset > u.group.Reset
	u.group = group
	if u.m == nil {
		return
	}
	now := time.Now()
	u.m.See(now, group)
	u.pokeAllLocked() // some may have to hear that they are out
	u.afterLocked(now)
}

// end gives up.
func (u *unit) end(why error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.endLocked(why)
}

func (u *unit) endLocked(why error) {
	if u.err != nil {
		return
	}
	u.err = why
	u.pausesLocked(false)
	if u.m == nil {
		close(u.loaded)
	} else {
		u.m.End()
		u.answerLocked()
		u.m = nil
	}
	u.post.g.timers.set(&u.deadline, time.Time{})
	u.pokeAllLocked()
}

// with runs something on the machine, and carries out what comes of it.
func (u *unit) with(f func(m *lease.Machine, now time.Time)) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.err != nil:
		return u.err
	case u.m == nil:
		return errLoading
	}
	now := time.Now()
	f(u.m, now)
	u.afterLocked(now)
	return nil
}

// afterLocked carries out what came of a call of the machine.
func (u *unit) afterLocked(now time.Time) {
	g := u.post.g
	u.answerLocked()
	g.metrics.timeouts.Add(float64(u.m.RanOut()))
	u.pausesLocked(u.m.Paused())
	if u.m.Over() { // by a commit, or by a change of the group
		u.m, u.loaded = nil, make(chan struct{})
		g.timers.set(&u.deadline, time.Time{})
		nudge(u.post.wake)
		return
	}
	if u.m.Dirty() {
		g.commits.add(u)
	}
	if of, free := u.m.Free(now); !free {
		u.released = cluster.ReleaseOf{}
	} else if of != u.released {
		u.released = of
		g.releases.add(u, of)
	}
	due := u.m.Deadline()
	if len(u.takers) > 0 {
		u.roomLocked()
		if u.pokeLocked(now) {
			due = sooner(due, now.Add(pokeAgain))
		} else if _, n := u.m.Wants(1); n > 0 {
			if now.Before(u.unread) {
				due = sooner(due, u.unread)
			} else {
				nudge(u.post.wake) // there are records that were not read
			}
		}
	}
	g.timers.set(&u.deadline, due)
	if len(u.group.Members) == 0 && len(u.takers) == 0 && u.m.Idle() {
		u.endLocked(fault.New(fault.Fenced, "group %q has no members", u.name))
		nudge(u.post.wake)
	}
}

// sooner is the first of two moments, a zero one being none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// tick lets time pass.
func (u *unit) tick() {
	_ = u.with(func(m *lease.Machine, now time.Time) { m.Tick(now) }) // one that is over has no time
}

func (u *unit) answerLocked() {
	for _, a := range u.m.Answers() {
		if c, ok := u.settling[a.Token]; ok {
			delete(u.settling, a.Token)
			c <- a // it has room
		}
	}
}

// pokeLocked tells the first one in turn who can take something. It says whether there is
// one.
func (u *unit) pokeLocked(now time.Time) bool {
	if !u.m.Any() {
		return false
	}
	for i, t := range u.takers {
		if !t.full.Load() && u.m.Ready(now, t.by) {
			nudge(t.poke)
			u.takers = append(slices.Delete(u.takers, i, i+1), t)
			return true
		}
	}
	return false
}

// roomLocked tells those who hold fewer records than before.
func (u *unit) roomLocked() {
	for i := range u.takers {
		t := &u.takers[i]
		if !t.full.Load() {
			t.held = 0
			continue
		}
		held := u.m.Held(t.by.Member)
		if held < t.held {
			nudge(t.poke)
		}
		t.held = held
	}
}

func (u *unit) pokeAllLocked() {
	for _, t := range u.takers {
		nudge(t.poke)
	}
}

func (u *unit) join(t *taker) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.takers = append(u.takers, waiting{taker: t})
	if u.waited.Add(1) == 1 && !u.post.looking.Load() {
		nudge(u.post.wake) // somebody has to look out for new records
	}
}

// quit takes one out of the turn; if he was told that there is something, the next one is.
func (u *unit) quit(t *taker) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if i := slices.IndexFunc(u.takers, func(w waiting) bool { return w.taker == t }); i >= 0 {
		u.takers = slices.Delete(u.takers, i, i+1)
		u.waited.Add(-1)
	}
	if u.m != nil {
		u.afterLocked(time.Now())
	}
}

package sim

import (
	"time"

	"tidewire/internal/cluster"
)

// feed follows the coordinator's state for a process, at one of the coordinators at a
// time. It never goes back.
type feed struct {
	w        *World
	p        *process
	from     *member
	pipe     pipe
	index    uint64
	heard    time.Duration
	apply    func(*cluster.Snapshot)
	snapshot *cluster.Snapshot
	busy     bool // it acts on nothing new
}

func (w *World) follow(p *process, apply func(*cluster.Snapshot)) *feed {
	f := &feed{w: w, p: p, apply: apply, snapshot: &cluster.Snapshot{}}
	w.watchers = append(w.watchers, f)
	return f
}

// start begins anew with the process.
func (f *feed) start() {
	f.index, f.heard, f.snapshot, f.pipe, f.busy = 0, f.w.now, &cluster.Snapshot{}, pipe{}, false
	f.change()
	f.watch()
}

// change goes to a coordinator: its own, if there is one in the process, else any.
func (f *feed) change() {
	if f.p.member != nil {
		f.from = f.p.member
		return
	}
	all := f.w.council.members
	f.from = all[f.w.rng.IntN(len(all))]
}

func (f *feed) watch() {
	f.w.in(f.p, 250*time.Millisecond, func() {
		if f.w.now-f.heard > time.Second && f.p.member == nil {
			f.heard = f.w.now
			f.change()
			f.w.reached.hit("feed moved to another coordinator")
		}
		f.watch()
	})
}

func (f *feed) hears(from *member, index uint64) {
	if f.from != from {
		return
	}
	f.heard = f.w.now
	if index < f.index {
		f.w.reached.hit("older state refused")
	}
	if index <= f.index {
		return
	}
	f.index = index
	if !f.busy {
		f.acts()
	}
}

// acts goes on with the newest state that was heard of.
func (f *feed) acts() {
	f.busy = false
	if s := f.w.council.history[f.index]; s != nil && s != f.snapshot {
		f.snapshot = s
		f.apply(s)
	}
}

package sim

import (
	"slices"
	"time"

	"tidewire/internal/ident"
)

// flipAlone damages a partition where nobody who may be elected is left whole: either all of
// them at once, or the leader after everybody else has died and before they are back. It is
// for topics that go on then with who is there.
func (w *World) flipAlone(f *Fault) {
	i := f.Who.Partition
	p := w.council.partition(i)
	b := w.brokerOf(p.Leader)
	if b == nil {
		return
	}
	if w.chance(0.3) {
		for _, n := range slices.Concat(p.ISR, p.ELR) {
			if o := w.brokerOf(n); w.mayLoseAll(o, i) {
				w.spoils(o, i)
			}
		}
		return
	}
	for _, n := range p.Replicas {
		if o := w.brokerOf(n); o != b && o.p.member == nil {
			w.kill(o.p, w.chance(0.5))
			w.later(w.set.Lease+f.For+w.between(0, time.Second), func() { w.revive(o.p) })
		}
	}
	until := w.now + w.set.Lease + f.For
	var look func()
	look = func() {
		switch p := w.council.partition(i); {
		case p.Leader != b.id || w.now > until:
		case !b.alone(p):
			w.later(20*time.Millisecond, look)
		case w.mayLoseAll(b, i):
			w.spoils(b, i)
		}
	}
	look()
}

// mayLoseAll says whether somebody else has the partition, whatever that one has, and will
// have it for as long as it takes: this broker keeps its folder, as far as it can be read.
func (w *World) mayLoseAll(b *broker, i int) bool {
	p := w.council.partition(i)
	return w.set.Unclean && !b.lost && slices.ContainsFunc(p.Replicas, func(n ident.NodeID) bool {
		o := w.brokerOf(n)
		return o != b && !o.lost && !slices.Contains(p.Removing, n)
	})
}

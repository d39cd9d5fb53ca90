package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// reboots notes that a broker has lost with the power what was only in its page cache, of
// which its acknowledgements may have been: until the coordinator has heard that its
// machine has another boot id it may be counted on, and cannot be.
func (b *broker) reboots() {
	b.disk.boot++
	for i := range b.dropped {
		b.dropped[i] = b.w.set.Replicated
	}
}

// rebooted takes in that the coordinator has heard of it (rule C2): who is counted on from
// now on has what is committed, but where nobody else has anything.
func (w *World) rebooted(r *cluster.Register, after *cluster.Topic) {
	b := w.brokerOf(r.Node.ID)
	if r.Node.Boot != b.boot() {
		return // it comes late
	}
	for i := range b.dropped {
		if p := &after.Partitions[i]; b.dropped[i] && counted(p, b.id) && b.alone(p) {
			w.reached.hit("replica that nobody else can stand in for, after another boot")
		} else {
			b.dropped[i] = false
		}
	}
}

// fsyncs asks for a while for more than the page cache, and takes the power from one whose
// disk lags behind that as soon as everybody was told.
func (w *World) fsyncs(f *Fault, b *broker) {
	if !w.set.Replicated {
		return
	}
	w.reached.hit("durability changed")
	b.disk.stalled = w.now + f.For
	w.durability(cluster.Fsync)
	w.later(f.For/2, func() { w.kill(b.p, true) })
	w.later(f.For, func() { w.revive(b.p) })
	w.later(f.For+time.Second, func() { w.durability(cluster.Replicated) })
}

// durability changes the setting, or does not.
func (w *World) durability(d cluster.Durability) {
	w.council.propose(w.edge, cluster.Change{Alter: &cluster.Alter{Name: topicName, Patch: cluster.SettingsPatch{Durability: &d}}}, func(cluster.Answer, error) {})
}

// extras draws faults that some runs have besides.
func extras(rng *rand.Rand, set *Setup) (faults []Fault) {
	add := func(most int, kinds ...string) {
		for n := rng.IntN(most + 1); n > 0; n-- {
			faults = append(faults, Fault{
				At: time.Duration(rng.Int64N(int64(set.Length))), For: time.Duration(rng.Int64N(int64(jumpsFor))),
				Kind: kinds[rng.IntN(len(kinds))], Who: who(rng, set),
			})
		}
	}
	if set.Replicated { // page caches are ahead of the disks
		set.SyncMax *= time.Duration(1 + rng.IntN(40))
		add(4, "durability", "fail-sync", "blackout", "power")
	}
	if set.Reborn {
		add(3, "delete")
	}
	add(4, "jump")
	if set.Unclean {
		add(2, "flip-alone")
	}
	return faults
}

// onlyOne says whether a replica that is elected may lack records, and nobody else has any.
func (w *World) onlyOne(p *cluster.Partition, n ident.NodeID) bool {
	b := w.brokerOf(n)
	return w.set.Replicated && b.dropped[p.Index] && b.alone(p) && slices.Contains(p.ISR, n)
}

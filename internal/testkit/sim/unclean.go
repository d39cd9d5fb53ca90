package sim

import (
	"slices"
	"sort"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// unclean holds that somebody who may lack records leads only where the topic says so and
// nobody else is there or about to be, and begins another truth: what of the former one
// that replica has on its disk.
func (w *World) unclean(i int, p, q *cluster.Partition, after *cluster.Snapshot, change *cluster.Change) {
	w.reached.hit("unclean election")
	t, b := w.truth[i], w.brokerOf(q.Leader)
	if !w.set.Unclean || b == nil || q.Unclean != q.LeaderEpoch || !slices.Equal(q.ISR, []ident.NodeID{q.Leader}) || len(q.ELR) > 0 {
		w.fail("unclean-election", "partition %d: %s", i, w.describe(i))
		return
	}
	for _, n := range slices.Concat(p.ISR, p.ELR) {
		lacks := change.Register != nil && change.Register.Node.ID == n || change.Unfit != nil && change.Unfit.Life.Node == n
		if node := after.Nodes[n]; node != nil && !node.Over() && !lacks {
			w.fail("unclean-election", "partition %d: %s leads and may lack records; %s does not and is there: %s", i, b.name(), w.brokerOf(n).name(), w.describe(i))
			return
		}
	}
	folder := b.disk.image
	if b.lost && b.disk.last != nil { // it is refused with what it has, and comes back with what it had
		folder = b.disk.last.image
	}
	n := t.begins(q.Unclean, folder.logs[i])
	if len(n.batches) < len(t.batches) {
		w.reached.hit("committed records lost by an unclean election")
	}
	w.note("council", "partition %d is led uncleanly by %s from %v on; committed were %v", i, b.name(), n.end(), t.end())
	w.truth[i] = n
	w.recheck = true
}

// opens takes in what a leader has that an unclean election chose, once all that it took over
// with is on its disk: from then on others may find that they have the same, and take it
// for committed.
func (w *World) opens(t *truth, b *broker, h *held) {
	l, s, disk := t.leaders[h.seen.epoch], h.log.s, b.disk.image.logs[t.part]
	if l.b != b || disk == nil || disk.end().Before(l.took) {
		return
	}
	t.opens = false
	w.grow(t, b, s, sort.Search(len(s.kept), func(i int) bool { return l.took.Before(s.kept[i].after) }))
	t.hw = max(t.hw, l.took.Offset)
}

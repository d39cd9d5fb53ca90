package sim

import (
	"slices"
	"sort"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// unclean holds that somebody who may lack records leads only where the topic says so and
// nobody else is there or about to be, and begins another truth: what of the former one
// that replica has on its disk.
func (w *World) unclean(i int, p, q *cluster.Partition, after *cluster.Snapshot, change *cluster.Change) {
	w.reached.hit("unclean election")
	t, b := w.truth[i], w.brokerOf(q.Leader)
	if !w.set.Unclean && !w.onlyOne(p, q.Leader) || b == nil || q.Unclean != q.LeaderEpoch || !slices.Equal(q.ISR, []ident.NodeID{q.Leader}) || len(q.ELR) > 0 {
		w.fail("unclean-election", "partition %d: %s", i, w.describe(i))
		return
	}
	gave := w.gaveUp(i, p, q, change)
	for _, n := range slices.Concat(p.ISR, p.ELR) {
		lacks := gave && n == p.Leader || change.Register != nil && change.Register.Node.ID == n || change.Unfit != nil && change.Unfit.Life.Node == n
		if node := after.Nodes[n]; node != nil && !node.Over() && !lacks && !w.onlyOne(p, n) {
			w.fail("unclean-election", "partition %d: %s leads and may lack records; %s does not and is there: %s", i, b.name(), w.brokerOf(n).name(), w.describe(i))
			return
		}
	}
	folder := b.disk.image
	if b.lost && b.disk.last != nil { // it is refused with what it has, and comes back with what it had
		folder = b.disk.last.image
	}
	var uncut *stored
	if h := b.replicas[i]; h != nil && b.current() {
		uncut = h.log.s
	}
	has := folder.of(i, w.topic)
	if b.clearing[i] {
		has = nil
	}
	n := t.begins(q.Unclean, has, uncut)
	if len(n.batches) < len(t.batches) {
		w.reached.hit("committed records lost by an unclean election")
	}
	w.note("council", "partition %d is led uncleanly by %s from %v on; committed were %v", i, b.name(), n.end(), t.end())
	w.truth[i] = n
	b.dropped[i] = b.dropped[i] && after.Nodes[b.id].Boot != b.boot() // a life of a former boot may come late
	w.recheck = true
}

// gaveUp says whether a leader has asked for a change that gives its partition to somebody
// who may lack records. It may where its own log is damaged and that one has got all that
// can be read of it.
func (w *World) gaveUp(i int, p, q *cluster.Partition, change *cluster.Change) bool {
	if change.Elect == nil || !slices.ContainsFunc(change.Elect.Of, func(e cluster.ElectOf) bool {
		return int(e.Partition.Index) == i && e.Version == p.Version && e.Leader == q.Leader && e.Unclean != 0
	}) {
		return false
	}
	w.reached.hit("damaged leader without others in sync followed by who had all that could be read")
	by, to := w.brokerOf(p.Leader).disk.image.logs[i], w.brokerOf(q.Leader)
	has := to.disk.image.logs[i]
	if h := to.replicas[i]; h != nil && to.current() {
		has = h.log.s
	}
	if by == nil || by.bad < 0 || has == nil || has.end().Before(by.kept[by.bad].at) {
		w.fail("gives-what-it-can", "partition %d: %s leads in the place of %s, who is damaged, and lacks what that one can give: %s", i, to.name(), w.brokerOf(p.Leader).name(), w.describe(i))
	}
	return true
}

// forgets takes in that a broker drops its log, or cuts it to what is left. Where it was
// elected uncleanly meanwhile, and has yet to hear of that, it will lead with no more.
func (w *World) forgets(b *broker, i int, left *stored) {
	t := w.truth[i]
	if !b.current() || !t.opens || !counted(w.council.partition(i), b.id) {
		return
	}
	n := t.former.begins(t.unclean, left, nil)
	n.refused, n.moved, n.taken = t.refused, t.moved, t.taken
	w.note(b.name(), "loses some of what it was elected uncleanly with")
	w.truth[i], w.recheck = n, true
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
	t.dropped(s)
	w.grow(t, b, s, sort.Search(len(s.kept), func(i int) bool { return l.took.Before(s.kept[i].after) }))
	t.hw = max(t.hw, l.took.Offset)
}

// dropped takes in what a log has dropped before its start and the disk had not got yet when
// the truth began: it was committed in a former one.
func (t *truth) dropped(s *stored) {
	n := len(t.batches)
	for f := t.former; f != nil && t.end().Before(s.start); f = f.former {
		if len(f.batches) < n || n > 0 && f.batches[n-1].after != t.batches[n-1].after {
			continue // what it led to is not this
		}
		for i := n; i < len(f.batches) && t.end().Before(s.start); i++ {
			t.learn(&f.batches[i])
		}
		n = len(t.batches)
	}
}

// laggardLeads keeps what a follower writes from its disk until nobody counts on it, and
// then ends everybody else: it leads with more than it can be sure of.
func (w *World) laggardLeads(f *Fault, b *broker) {
	i, until := f.Who.Partition, w.now+2*w.set.Lag+time.Second
	b.disk.stalled = until + f.For
	var look func()
	look = func() {
		switch p := w.council.partition(i); {
		case !b.p.runs() || w.now > until:
		case counted(p, b.id):
			w.later(20*time.Millisecond, look)
		default:
			w.othersDie(i, b, f.For)
		}
	}
	look()
}

// newcomerLeads ends everybody else as a broker begins a log anew, with what its leader
// knows of producers: it leads before it has what they are of.
func (w *World) newcomerLeads(b *broker, i int) {
	f, leader := w.newcomer, w.brokerOf(w.council.partition(i).Leader)
	if f == nil || w.healing || leader == nil || counted(w.council.partition(i), b.id) {
		return
	}
	w.newcomer = nil
	from, to := leader.p.machine, b.p.machine
	w.net.hold(from, to)
	w.later(f.For, func() { w.net.heal(from, to) })
	w.after(0, func() { w.othersDie(i, b, f.For) })
}

// othersDie ends everybody who may be elected for a partition.
func (w *World) othersDie(i int, b *broker, lasts time.Duration) {
	p := w.council.partition(i)
	w.note("fault", "all die but %s", b.name())
	w.resetsLate()
	for _, n := range slices.Concat(p.ISR, p.ELR) {
		if o := w.brokerOf(n); o != b {
			w.kill(o.p, w.chance(0.5))
			w.later(w.set.Lease+lasts+w.between(0, time.Second), func() { w.revive(o.p) })
		}
	}
}

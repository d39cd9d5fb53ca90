package sim

import (
	"slices"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// move asks for a replica to be moved.
func (w *World) move(i int, b, to *broker) {
	of := cluster.MoveOf{Partition: w.ref(i), Version: w.council.partition(i).Version, Add: []ident.NodeID{to.id}, Remove: []ident.NodeID{b.id}}
	w.council.propose(w.edge, cluster.Change{Move: &cluster.Move{Of: []cluster.MoveOf{of}}}, func(cluster.Answer, error) {})
}

// movesBack has a replica that moves moved back as soon as it has, and keeps the news of
// both from the one who had it, whom the others reach but for that.
func (w *World) movesBack(i int, b, to *broker) {
	for _, m := range w.council.members {
		w.net.hold(m.p.machine, b.p.machine)
	}
	gives := w.now + silence/2
	away := false
	var look func()
	look = func() {
		in := slices.Contains(w.council.partition(i).Replicas, b.id)
		switch {
		case !away && !in:
			away = true
			w.move(i, to, b)
		case away && in:
			w.reached.hit("replica moved away and back unheard")
			gives = w.now
		}
		if w.now < gives {
			w.later(20*time.Millisecond, look)
			return
		}
		for _, m := range w.council.members {
			w.net.heal(m.p.machine, b.p.machine)
		}
	}
	w.later(20*time.Millisecond, look)
}

// unseen is a replica that is moved away and back while its leader is busy with something
// else, and that cannot say anything to it.
type unseen struct {
	part  int
	b, to *broker
	by    *broker // the leader
}

// moves is a change of a partition, which an unseen move may be waiting for.
func (w *World) moves(i int, p, q *cluster.Partition) {
	u := w.unseen
	if u == nil || u.part != i || w.healing {
		return
	}
	was, is := slices.Contains(p.Replicas, u.b.id), slices.Contains(q.Replicas, u.b.id)
	switch {
	case p.Leader != q.Leader || q.Leader == u.b.id:
		w.unseen = nil
	case was && !is && u.by == nil:
		u.by = w.brokerOf(q.Leader)
		f, from, to := u.by.feed, u.b.p.machine, u.by.p.machine
		f.busy = true
		w.net.hold(from, to)
		w.after(0, func() { w.move(i, u.to, u.b) })
		w.after(silence/2, func() { w.net.heal(from, to) })
		w.in(u.by.p, silence/4, f.acts)
	case !was && is && u.by != nil:
		w.reached.hit("replica moved away and back unseen by its leader")
		w.unseen = nil
		w.in(u.by.p, 2*w.set.NetMax, u.by.feed.acts)
	}
}

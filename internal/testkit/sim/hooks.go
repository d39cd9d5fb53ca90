package sim

import (
	"context"
	"log/slog"
	"slices"
	"sort"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// What follows is told by the parts of the world when something happens that an
// invariant or a state to be reached is about.

func (w *World) appended(*broker, int, *kept) {}

// opened is a replica that begins.
func (w *World) opened(b *broker, i int, h *held) { h.seen.hw = h.log.Start() }

// drops is a log that loses its first batches because they are over. At a leader that
// says that they are committed, voids as well, which no offset shows.
func (w *World) drops(b *broker, i int, to record.Position) {
	w.reached.hit("log start moved")
	if h := b.replicas[i]; b.current() && h.seen.leads {
		s := h.log.s
		w.grow(w.era(i, h.seen.epoch), b, s, sort.Search(len(s.kept), func(k int) bool { return to.Before(s.kept[k].after) }))
	}
}

// truncates holds that nothing committed is cut away.
func (w *World) truncates(b *broker, i int, to record.Position) {
	w.reached.hit("log truncated")
	w.note(b.name(), "truncates partition %d to %v", i, to)
	if !b.current() {
		return
	}
	s := b.replicas[i].log.s
	left := s.clone()
	left.cut(to)
	w.forgets(b, i, left)
	t := w.truth[i]
	if n := t.holds(s); n > s.first && to.Before(t.batches[n-1].after) {
		w.fail("committed-stays", "%s, partition %d: cuts at %v what is committed up to %v: %s", b.name(), i, to, t.batches[n-1].after, w.describe(i))
	}
}

// restarts is a log that begins anew at its leader's start.
func (w *World) restarts(b *broker, i int, start ident.Offset) {
	w.reached.hit("log begun anew at the leader's start")
	w.note(b.name(), "begins partition %d anew at %d", i, start)
	w.newcomerLeads(b, i)
	if !b.current() {
		return
	}
	t, s := w.truth[i], b.replicas[i].log.s
	if n := t.holds(s); n > s.first && t.batches[n-1].after.Offset > start && counted(w.council.partition(i), b.id) {
		w.fail("committed-stays", "%s, partition %d: begins anew at %d and drops %v to %v, committed up to %v: %s", b.name(), i, start, s.start, s.end(), t.batches[n-1].after, w.describe(i))
	}
}

// pushed is a push that arrives.
func (w *World) pushed(b *broker, p *rpc.Push) {
	if h := b.replicas[p.Partition.Index]; h != nil && p.Epoch < h.view.Epoch {
		w.reached.hit("push of a leader of the past")
	}
}

// held is a follower's word that arrives.
func (w *World) held(b *broker, h rpc.Held) {
	if r := b.replicas[h.Partition.Index]; r != nil && (!r.seen.leads || h.Epoch != r.view.Epoch) {
		w.reached.hit("late word of a follower")
	}
}

// diverged is an answer to where a log ends that was acted on.
func (w *World) diverged(u *upstream, d rpc.Divergence, err error) {
	if err != nil && u.b.p.up && u.b.replicas[d.Partition.Index] != nil && u.b.replicas[d.Partition.Index].log.dead() {
		return
	}
	if d.Agreed {
		w.reached.hit("follower and leader agree")
	}
}

// decided holds what the coordinator decides, and notes what it means.
func (w *World) decided(before, after *cluster.Snapshot, change *cluster.Change, answer *cluster.Answer) {
	w.recheck = true
	w.groupsDecided(before, after, change, answer)
	if a := change.Activate; a != nil && answer.Refusal == nil {
		if b := w.brokerOf(a.Node); b.lost && a.Epoch > b.lostIn { // not a life from before, whose activation came late
			b.lost = false
			w.reached.hit("broker without its records activated")
		}
	}
	if e := change.Expire; e != nil {
		for _, l := range e.Lives {
			w.note("council", "expires %s", w.brokerOf(l.Node).name())
			if b := w.brokerOf(l.Node); b.p.up && b.self == l && b.now().Before(b.leases.Until()) && after.Nodes[l.Node].Over() && !before.Nodes[l.Node].Over() {
				w.fail("leases-hold", "the life of %s is declared over, and its lease lasts until %s", b.name(), b.leases.Until())
			}
		}
	}
	was, now := before.Topics[topicName], after.Topics[topicName]
	switch {
	case was == nil && now != nil:
		w.reborn(now)
	case was != nil && now == nil:
		w.after(w.gap, w.creates)
	}
	if now == nil || was == nil {
		return
	}
	if r := change.Register; r != nil && answer.Refusal == nil {
		w.rebooted(r, now)
	}
	w.purgeDecided(was, now, change, answer)
	if c := change.Insync; c != nil {
		w.restsOnWhatWas(was, c, answer)
		w.whole(was, now, after)
	}
	for i := range now.Partitions {
		p, q := &was.Partitions[i], &now.Partitions[i]
		if r := change.Register; r != nil && !w.brokerOf(r.Node.ID).lost && len(r.Unfit) == 0 && counted(p, r.Node.ID) && !counted(q, r.Node.ID) {
			if n := before.Nodes[r.Node.ID]; n.Activated <= r.Last && !(w.set.Replicated && n.Boot != r.Node.Boot) { // else it is of a life that is over
				w.fail("stops-remove-nobody", "partition %d: %s stopped and is here again, and may not be elected: %s", i, w.brokerOf(r.Node.ID).name(), w.describe(i))
			}
		}
		if q.LeaderEpoch != p.LeaderEpoch && q.LeaderEpoch == q.Unclean {
			w.unclean(i, p, q, after, change)
		}
		if p.Version == q.Version {
			if !unchanged(p, q) || was.Settings.MinInsync != now.Settings.MinInsync {
				w.fail("versions-rise", "%s: what partition %d rests on has changed, and its version is %d still", change.Kind(), i, q.Version)
			}
		} else {
			w.note("council", "%s: partition %d is at version %d: epoch %d, leader %s, ISR %s, ELR %s", change.Kind(), i, q.Version, q.LeaderEpoch, w.names(q.Leader), w.names(q.ISR...), w.names(q.ELR...))
			w.sound(i, now, p, q)
			w.moves(i, p, q)
			w.notable(i, now, p, q)
		}
	}
	if c := change.Elect; c != nil {
		for i, of := range c.Of {
			if of.Takeover && i < len(answer.Taken) && answer.Taken[i] {
				w.reached.hit("takeover by a member of the ELR (C3)")
				w.truth[of.Partition.Index].taken++
			}
		}
	}
}

// restsOnWhatWas holds that an ISR is changed by its leader alone, who knows what it is
// (rule A3).
func (w *World) restsOnWhatWas(was *cluster.Topic, c *cluster.Insync, answer *cluster.Answer) {
	for i, of := range c.Of {
		if i >= len(answer.Taken) || !answer.Taken[i] || answer.Index != w.council.index {
			continue
		}
		if p := &was.Partitions[of.Partition.Index]; of.Partition.Topic != was.ID || p.Version != of.Version || p.LeaderEpoch != of.Epoch || p.Leader != c.Leader.Node {
			w.fail("rests-on-what-was", "partition %d: an ISR of version %d and epoch %d is taken at version %d and epoch %d", of.Partition.Index, of.Version, of.Epoch, p.Version, p.LeaderEpoch)
		}
	}
}

// whole holds that nobody is taken into an ISR whose former life has noted that its log is
// damaged.
func (w *World) whole(was, now *cluster.Topic, after *cluster.Snapshot) {
	for i := range now.Partitions {
		for _, n := range now.Partitions[i].ISR {
			b := w.brokerOf(n)
			lives := b.self.Epoch != 0 && after.Nodes[n].BrokerEpoch == b.self.Epoch
			if f := b.disk.survives(); lives && !counted(&was.Partitions[i], n) && f.of(i, was.ID) != nil && f.rots(i) && 0 < f.harmed[i] && f.harmed[i] < b.p.life {
				w.fail("whole-logs-join", "partition %d: %s is taken in, and knows from its folder that its log is damaged: %s", i, b.name(), w.describe(i))
			}
		}
	}
}

// unchanged says that nothing of a partition is other than it was.
func unchanged(p, q *cluster.Partition) bool {
	return p.Leader == q.Leader && p.LeaderEpoch == q.LeaderEpoch && slices.Equal(p.Replicas, q.Replicas) && slices.Equal(p.ISR, q.ISR) && slices.Equal(p.ELR, q.ELR)
}

// sound holds the shape of a partition's state.
func (w *World) sound(i int, t *cluster.Topic, p, q *cluster.Partition) {
	in := func(set []ident.NodeID) func(ident.NodeID) bool {
		return func(n ident.NodeID) bool { return slices.Contains(set, n) }
	}
	none := ident.NodeID{}
	switch {
	case q.Version <= p.Version, q.LeaderEpoch < p.LeaderEpoch:
		w.fail("versions-rise", "partition %d: version %d after %d, epoch %d after %d", i, q.Version, p.Version, q.LeaderEpoch, p.LeaderEpoch)
	case q.Leader != p.Leader && q.LeaderEpoch == p.LeaderEpoch:
		w.fail("one-leader", "partition %d: another leader in epoch %d", i, q.LeaderEpoch)
	case len(q.ISR) < t.Settings.MinInsync && slices.ContainsFunc(p.Replicas, func(n ident.NodeID) bool { return !in(q.Replicas)(n) }):
		w.fail("enough-replicas-stay", "%s", w.describe(i))
	case q.Leader != none && !in(q.ISR)(q.Leader):
		w.fail("leader-in-sync", "%s", w.describe(i))
	case len(q.ISR) == 0 || slices.ContainsFunc(q.ISR, in(q.ELR)) || len(q.ELR) > 0 && len(q.ISR) >= t.Settings.MinInsync:
		w.fail("isr-and-elr", "%s", w.describe(i))
	}
	for _, n := range slices.Concat(q.ISR, q.ELR) {
		if !in(q.Replicas)(n) {
			w.fail("isr-and-elr", "%s", w.describe(i))
		}
	}
}

// notable counts what a change of a partition is an instance of.
func (w *World) notable(i int, t *cluster.Topic, p, q *cluster.Partition) {
	if q.LeaderEpoch != p.LeaderEpoch {
		truth := w.truth[i]
		if w.now-truth.moved < 2*w.set.NetMax {
			w.reached.hit("two failovers within a round trip")
		}
		truth.moved = w.now
		switch {
		case q.Leader == (ident.NodeID{}):
			w.reached.hit("partition without a leader")
		case slices.Contains(p.ELR, q.Leader):
			w.reached.hit("elected from the ELR")
		case p.Leader == (ident.NodeID{}):
			w.reached.hit("leader after none")
		default:
			w.reached.hit("failover")
		}
	}
	if len(q.ISR) < len(p.ISR) {
		w.reached.hit("ISR shrinks")
		if len(q.ISR) < t.Settings.MinInsync {
			w.reached.hit("ISR below min_insync")
			w.isTakenOver(i)
		}
	}
	if len(q.ISR) > len(p.ISR) {
		w.reached.hit("ISR grows")
		if b := w.cutOff; b != nil && q.Leader == b.id {
			w.truth[i].grown++
		}
	}
	if len(p.Adding)+len(p.Removing) > 0 && len(q.Adding)+len(q.Removing) == 0 {
		w.reached.hit("move completed")
	}
}

// logger takes what replicas log: what is worth a warning goes into the trace.
func (w *World) logger(who string) *slog.Logger { return slog.New(&handler{w, who}) }

type handler struct {
	w   *World
	who string
}

func (h *handler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (h *handler) WithAttrs([]slog.Attr) slog.Handler           { return h }
func (h *handler) WithGroup(string) slog.Handler                { return h }
func (h *handler) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	h.w.note(h.who, "%s", text)
	return nil
}

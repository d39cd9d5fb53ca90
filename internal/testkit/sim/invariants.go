package sim

import (
	"bytes"
	"fmt"
	"slices"
	"sort"
	"strings"

	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// seen is what was last seen of a replica.
type seen struct {
	hw     ident.Offset
	to     record.Position // that is committed, as far as it knows
	epoch  ident.Epoch
	leads  bool
	serves bool
}

// check holds the invariants after a step, of all that it may have touched.
func (w *World) check() {
	for len(w.touched) > 0 && w.failure == nil {
		n := len(w.touched) - 1
		b := w.touched[n]
		w.touched = w.touched[:n]
		b.touched = false
		if !b.current() {
			continue
		}
		for i, h := range b.replicas {
			if h != nil {
				w.observe(b, i, h)
				w.inSync(b, i)
			}
		}
		if w.steps%256 == 0 {
			w.remembers(b)
		}
	}
	if w.recheck && w.failure == nil {
		w.recheck = false
		for i := range w.truth {
			for _, b := range w.brokers {
				w.inSync(b, i)
			}
			w.waitsForElectable(i)
		}
	}
}

// observe looks at one replica: what it shows to others must be true.
func (w *World) observe(b *broker, i int, h *held) {
	load := h.replica.Load()
	now := seen{load.Bounds.HW, h.replica.Committed(), load.Bounds.Epoch, load.Leads, load.Serves}
	t := w.era(i, now.epoch)
	if t.opens && h.seen.leads {
		w.opens(t, b, h)
	}
	if now == h.seen && now.hw <= t.hw && !load.Damaged {
		return
	}
	was := h.seen
	h.seen = now
	if err := h.replica.Halted(); err != nil {
		w.fail("no-halt", "%s, partition %d: %v: %s", b.name(), i, err, w.describe(i))
		return
	}
	// After an unclean election, until it has compared its log, a replica takes for
	// committed what may be gone. It shows that to nobody.
	unsure := t.unclean > 0 && !now.serves
	if now.hw < was.hw && !unsure && was.epoch >= t.unclean { // else it was of another truth
		w.fail("high-watermark-monotone", "%s, partition %d: from %d to %d", b.name(), i, was.hw, now.hw)
	}
	if now.leads {
		w.ledBy(t, b, now.epoch, was)
		t.leads(now.epoch, now.to.Offset)
		if t.end().Before(now.to) {
			w.advance(t, b, h, now.to)
		}
	}
	switch {
	case unsure:
	case now.hw > t.hw:
		w.fail("committed-only", "%s, partition %d: follows with high watermark %d where %d is committed", b.name(), i, now.hw, t.hw)
	case now.leads && now.serves && now.hw < t.before(now.epoch):
		w.fail("leader-knows", "%s, partition %d: serves in epoch %d with high watermark %d; older leaders had %d", b.name(), i, now.epoch, now.hw, t.before(now.epoch))
	case t.holds(h.log.s) < t.below(now.hw):
		w.fail("one-truth", "%s, partition %d: takes %d for committed and parts from the truth at %d: %s", b.name(), i, now.hw, t.batches[t.holds(h.log.s)].at.Offset, w.describe(i))
	}
}

// ledBy holds that an epoch has one leader.
func (w *World) ledBy(t *truth, b *broker, e ident.Epoch, was seen) {
	l, known := t.leaders[e]
	if !known {
		t.leaders[e] = lead{b, b.p.life, b.replicas[t.part].log.EndPosition()}
		w.note(b.name(), "leads partition %d in epoch %d", t.part, e)
		w.remembers(b)
	} else if l.b != b || l.life != b.p.life {
		w.fail("one-leader", "partition %d, epoch %d: led by %s and by %s", t.part, e, l.b.name(), b.name())
	}
	if c := w.council.partition(t.part); c != nil && c.LeaderEpoch > e && was.leads {
		w.reached.hit("leader of the past")
	}
}

// advance takes a leader's high watermark in, with the voids below it.
func (w *World) advance(t *truth, b *broker, h *held, to record.Position) {
	s := h.log.s
	if s.end().Before(to) {
		w.fail("committed-only", "%s, partition %d: high watermark %v above the log's end %v", b.name(), t.part, to, s.end())
		return
	}
	w.grow(t, b, s, sort.Search(len(s.kept), func(i int) bool { return to.Before(s.kept[i].after) }))
	t.hw = max(t.hw, to.Offset)
}

// inSync holds that whoever may be elected has everything that is committed, on its
// disk.
func (w *World) inSync(b *broker, i int) {
	p := w.council.partition(i)
	if p == nil || !w.there() || b.lost || b.dropped[i] || !slices.Contains(p.ISR, b.id) && !slices.Contains(p.ELR, b.id) {
		return
	}
	t, s := w.truth[i], b.disk.survives().of(i, w.topic)
	if s == nil && len(t.batches) > 0 {
		w.fail("in-sync", "partition %d: %s can be elected and has no log: %s", i, b.name(), w.describe(i))
		return
	}
	if s != nil && t.holds(s) < len(t.batches) {
		w.fail("in-sync", "partition %d: %s can be elected and lacks what is committed at %d, on its disk: %s", i, b.name(), t.batches[t.holds(s)].at.Offset, w.describe(i))
	}
}

// waitsForElectable holds that the leader in office waits for everybody who may be
// elected while the high watermark can move.
func (w *World) waitsForElectable(i int) {
	p := w.council.partition(i)
	if p == nil {
		return
	}
	b := w.brokerOf(p.Leader)
	if b == nil || !b.p.up || !b.current() || b.replicas[i] == nil {
		return
	}
	h := b.replicas[i]
	if !h.seen.leads || h.view.Epoch != p.LeaderEpoch || h.seen.epoch != p.LeaderEpoch {
		return
	}
	waits := h.replica.WaitsFor()
	for _, n := range p.ISR {
		if !slices.Contains(waits, n) {
			w.fail("waits-for-electable", "partition %d: %s leads and does not wait for %s, which is in sync: %s", i, b.name(), w.brokerOf(n).name(), w.describe(i))
		}
	}
}

// remembers holds that what a broker remembers of producers is what its logs say.
func (w *World) remembers(b *broker) {
	for i, h := range b.replicas {
		if !b.current() || h == nil || h.log.s.bad >= 0 || h.log.dead() || h.log.cutting {
			continue
		}
		t := w.era(i, h.seen.epoch)
		at, state := h.replica.Snapshot()
		if at != h.log.EndPosition().Offset {
			continue // a cut is under way, or it begins ahead of its log
		}
		m, err := rebuilt(h.log, foldRules())
		if err != nil {
			w.fail("producers-are-the-fold", "%s, partition %d: %v", b.name(), i, err)
			return
		}
		if !bytes.Equal(m.Snapshot(), state) {
			w.fail("producers-are-the-fold", "%s, partition %d: what it remembers of producers is not what its log says", b.name(), i)
		}
		if t.unclean > 0 {
			continue // a producer state may know of voids that were committed, and are lost
		}
		if folded, known, err := t.fold(h.log.s); err != nil {
			w.fail("producers-are-the-fold", "%s, partition %d: %v", b.name(), i, err)
		} else if known && !bytes.Equal(folded, state) {
			w.fail("producers-are-the-fold", "%s, partition %d: what it remembers of producers is not what was ever committed and what its log has behind that", b.name(), i)
		}
	}
}

// answers holds what a producer is told.
func (w *World) answers(b *broker, p *producer, batch []outgoing, a rpc.Appended) {
	if a.Err != nil || p.acks == rpc.AcksNone || w.failure != nil || !b.current() {
		return
	}
	h := b.replicas[p.part]
	if h == nil || len(a.Records) != len(batch) {
		w.fail("answers", "%s: %d answers to %d records", p.name, len(a.Records), len(batch))
		return
	}
	w.observe(b, p.part, h)
	t := w.era(p.part, h.seen.epoch)
	for i, r := range a.Records {
		o := &batch[i]
		switch {
		case r.Err != nil:
		case o.void:
			if p.acks == rpc.AcksAll {
				w.usedUp(b, p, o)
			}
		case p.acks == rpc.AcksAll:
			if v, ok := t.at(r.Offset); !ok || v != o.value || r.Offset >= t.hw {
				w.fail("kept", "%s is told by %s that %q is kept at %d; committed there, below %d, is %q: %s", p.name, b.name(), o.value, r.Offset, t.hw, v, w.describe(p.part))
			}
		default:
			w.keptByLeader(b, p, o, r.Offset)
		}
	}
}

// usedUp holds that a void which was acknowledged is committed: if it takes no offset,
// the high watermark does not show it.
func (w *World) usedUp(b *broker, p *producer, o *outgoing) {
	h := b.replicas[p.part]
	t, s := w.era(p.part, h.seen.epoch), h.log.s
	if t.producers[p.id] > o.sequence {
		return
	}
	for n := len(s.kept) - 1; n >= 0; n-- {
		it := s.kept[n].batch.Entries()
		for it.Next() {
			if e := it.Entry(); e.Producer == p.id && e.Sequence == o.sequence {
				w.grow(t, b, s, n+1)
				return
			}
		}
	}
	w.fail("kept", "%s is told that sequence %d is used up, and the leader's log does not say so", p.name, o.sequence)
}

// keptByLeader holds what acks=leader says: it is on the leader's disk, and the leader
// is sure to be one, or it is committed.
func (w *World) keptByLeader(b *broker, p *producer, o *outgoing, at ident.Offset) {
	t := w.era(p.part, b.replicas[p.part].seen.epoch)
	if v, ok := t.at(at); ok && v == o.value && at < t.hw {
		return
	}
	s := b.disk.image.of(p.part, w.topic)
	if s == nil || s.end().Offset <= at {
		w.fail("kept-by-leader", "%s is told by %s that %q is kept at %d, which is not on the disk", p.name, b.name(), o.value, at)
	} else if !b.leads() {
		w.fail("kept-by-leader", "%s is told by %s that %q is kept at %d, without a lease and before it is committed", p.name, b.name(), o.value, at)
	}
}

// served holds what a reader gets.
func (w *World) served(b *broker, req *rpc.Read, res *rpc.ReadResult, err error) {
	if !b.current() {
		return // it has yet to hear that the topic is no more
	}
	h := b.replicas[req.Partition.Index]
	w.observe(b, int(req.Partition.Index), h)
	t := w.era(int(req.Partition.Index), h.seen.epoch)
	w.unpurged(b, req, res, err)
	if err != nil || w.failure != nil {
		return
	}
	if res.Bounds.HW > t.hw {
		w.fail("committed-only", "%s, partition %d: shows high watermark %d where %d is committed", b.name(), t.part, res.Bounds.HW, t.hw)
	}
	if len(res.Batches) == 0 && req.Offset != res.Bounds.HW {
		w.fail("no-gap", "%s, partition %d: nothing is read at %d, below high watermark %d", b.name(), t.part, req.Offset, res.Bounds.HW)
	}
	if !h.seen.leads && len(res.Batches) > 0 {
		w.reached.hit("read from a follower")
	}
	next := req.Offset
	for rest := res.Batches; len(rest) > 0; {
		var batch record.Batch
		if batch, rest, err = record.Cut(rest); err != nil {
			w.fail("whole-batches", "%s, partition %d: %v", b.name(), t.part, err)
			return
		}
		hd := batch.Header()
		i := t.index(record.Position{Offset: hd.Base, Voids: 1 << 30})
		if hd.Base > next || hd.Next() <= next {
			w.fail("no-gap", "%s, partition %d: %d to %d comes where %d is next", b.name(), t.part, hd.Base, hd.Next(), next)
			return
		}
		if i >= len(t.batches) || t.batches[i].at.Offset != hd.Base || string(t.batches[i].batch) != string(batch) {
			w.fail("committed-only", "%s, partition %d: what is read at %d is not what is committed", b.name(), t.part, hd.Base)
			return
		}
		next = hd.Next()
	}
}

// read is where a reader goes on after an answer.
func (w *World) read(req *rpc.Read, res *rpc.ReadResult) ident.Offset {
	next := req.Offset
	for rest := res.Batches; len(rest) > 0; {
		batch, more, err := record.Cut(rest)
		if err != nil {
			break
		}
		next, rest = batch.Header().Next(), more
	}
	return next
}

// describe is how a partition stands everywhere.
func (w *World) describe(i int) string {
	var b strings.Builder
	p := w.council.partition(i)
	fmt.Fprintf(&b, "partition %d: leader %s, epoch %d, version %d, replicas %s, ISR %s, ELR %s; committed %d", i, w.names(p.Leader), p.LeaderEpoch, p.Version, w.names(p.Replicas...), w.names(p.ISR...), w.names(p.ELR...), w.truth[i].hw)
	for _, o := range w.brokers {
		s := o.disk.image.logs[i]
		if s == nil {
			continue
		}
		fmt.Fprintf(&b, "; %s: disk %d to %v", o.name(), s.start.Offset, s.end())
		if o.p.up && o.replicas != nil && o.replicas[i] != nil {
			h := o.replicas[i]
			fmt.Fprintf(&b, ", end %v, hw %d, epoch %d, leads %t", h.log.EndPosition(), h.seen.hw, h.seen.epoch, h.seen.leads)
		}
	}
	return b.String()
}

// names puts brokers into words.
func (w *World) names(ids ...ident.NodeID) string {
	var all []string
	for _, n := range ids {
		name := "nobody"
		if b := w.brokerOf(n); b != nil {
			name = b.name()
		}
		all = append(all, name)
	}
	return "[" + strings.Join(all, " ") + "]"
}

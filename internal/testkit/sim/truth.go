package sim

import (
	"bytes"
	"sort"
	"time"

	"tidewire/broker/partition"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/record"
)

// truth is what the world knows of a partition and no broker does: everything that was
// ever committed, once some leader's high watermark had passed it.
type truth struct {
	part      int
	unclean   ident.Epoch // with which this truth began; 0: it is the first
	former    *truth
	batches   []kept // all of them, from the very first
	hw        ident.Offset
	epochs    []epochHW // ascending
	leaders   map[ident.Epoch]lead
	producers map[ident.ProducerID]int64 // the next sequence
	values    map[string]bool
	refused   map[string]bool // values whose producers were told that they are not kept
	moved     time.Duration   // when the leader changed last
	taken     int             // takeovers
	machine   *partition.Machine
	folded    int    // batches that it knows
	snapshot  []byte // of it
	grown     int    // how often a leader that is cut off for good made the ISR larger
	opens     bool   // an unclean election began it, and its leader has compared its log with nobody's
}

// epochHW is how far a leader epoch brought the high watermark.
type epochHW struct {
	epoch ident.Epoch
	hw    ident.Offset
}

// lead is who led an epoch.
type lead struct {
	b    *broker
	life int
	took record.Position // where its log ended
}

func newTruth(part int) *truth {
	return &truth{part: part, machine: partition.New(0), leaders: map[ident.Epoch]lead{}, producers: map[ident.ProducerID]int64{}, values: map[string]bool{}, refused: map[string]bool{}}
}

// index is how many batches lie before a position.
func (t *truth) index(p record.Position) int {
	return sort.Search(len(t.batches), func(i int) bool { return p.Before(t.batches[i].after) })
}

// end is the end of what is committed, voids too.
func (t *truth) end() record.Position {
	if n := len(t.batches); n > 0 {
		return t.batches[n-1].after
	}
	return record.Position{}
}

// below is how many batches end at or before an offset, voids at it left out.
func (t *truth) below(o ident.Offset) int {
	n := sort.Search(len(t.batches), func(i int) bool { return t.batches[i].after.Offset > o })
	for n > 0 && t.batches[n-1].span == 0 {
		n--
	}
	return n
}

// holds is how many of the first batches of the truth a log agrees with, counting what
// lies before its start.
func (t *truth) holds(s *stored) int {
	if !s.audited || s.by != t {
		s.audited, s.by = !t.end().Before(s.start), t // what it dropped the truth may have yet to learn of
		s.first = t.index(s.start)
		s.agrees = s.first
	}
	for s.agrees < len(t.batches) {
		k := s.agrees - s.first
		if k >= len(s.kept) || s.kept[k].at != t.batches[s.agrees].at || !bytes.Equal(s.kept[k].batch, t.batches[s.agrees].batch) {
			break
		}
		s.agrees++
	}
	return s.agrees
}

// era is the truth of a partition as those know it who are in a leader epoch. An unclean
// election begins another one: a leader of the past goes on in its own for a while.
func (w *World) era(part int, e ident.Epoch) *truth {
	t := w.truth[part]
	for t.unclean > e {
		t = t.former
	}
	return t
}

// begins is the truth from an unclean election on: what the log of the one who leads
// has of the former one, or of one before that, if nobody ever led in the former. What a
// cut under way takes from its disk does not count, nor does a log that is on its way out.
// How far they agree is a place: of what lies before the log's start two truths may have
// more batches or fewer up to the same one.
func (t *truth) begins(e ident.Epoch, s, uncut *stored) *truth {
	n := newTruth(t.part)
	n.unclean, n.former, n.refused, n.moved, n.taken, n.opens = e, t, t.refused, t.moved, t.taken, true
	var known []kept
	var end record.Position
	for f := t; f != nil && s != nil; f = f.former {
		upto := f.holds(s)
		if uncut != nil {
			upto = min(upto, f.holds(uncut))
		}
		if upto > 0 && end.Before(f.batches[upto-1].after) {
			known, end = f.batches[:upto], f.batches[upto-1].after
		}
	}
	for i := range known {
		n.learn(&known[i])
		n.hw = known[i].after.Offset
	}
	return n
}

// learn takes in a batch that is known to be right.
func (t *truth) learn(k *kept) {
	t.batches = append(t.batches, *k)
	it := k.batch.Entries()
	for it.Next() {
		e := it.Entry()
		if !e.Producer.IsZero() {
			t.producers[e.Producer] = e.Sequence + 1
		}
		if !e.Void {
			t.values[string(e.Value)] = true
		}
	}
}

func foldRules() partition.Rules {
	return partition.Rules{Range: ident.FullRange, MaxMessageBytes: maxMessageBytes, IdempotencyWindow: cluster.DefaultIdempotencyWindow}
}

// fold is what everything says of producers that was ever committed, and what a log has
// behind that, as a snapshot; not known where the log lacks some of it.
func (t *truth) fold(s *stored) (snapshot []byte, known bool, err error) {
	if t.holds(s) < len(t.batches) || t.end().Before(s.start) {
		return nil, false, nil
	}
	if t.folded < len(t.batches) {
		for ; t.folded < len(t.batches); t.folded++ {
			if err := t.machine.Fold(t.batches[t.folded].batch, foldRules()); err != nil {
				return nil, false, err
			}
		}
		t.snapshot = t.machine.Snapshot()
	}
	behind := s.kept[len(t.batches)-s.first:]
	if len(behind) == 0 {
		return t.snapshot, true, nil
	}
	m, err := partition.Restore(t.snapshot, t.machine.End())
	if err != nil {
		return nil, false, err
	}
	for i := range behind {
		if err := m.Fold(behind[i].batch, foldRules()); err != nil {
			return nil, false, err
		}
	}
	return m.Snapshot(), true, nil
}

// refuse notes that a producer was told that its record is not kept, and gave it up.
func (t *truth) refuse(value string) { t.refused[value] = true }

// before is how far leaders of older epochs had brought the high watermark.
func (t *truth) before(e ident.Epoch) (hw ident.Offset) {
	for i := len(t.epochs) - 1; i >= 0; i-- {
		if t.epochs[i].epoch < e {
			hw = max(hw, t.epochs[i].hw)
		}
	}
	return hw
}

// leads notes how far a leader's high watermark is.
func (t *truth) leads(e ident.Epoch, hw ident.Offset) {
	i := sort.Search(len(t.epochs), func(i int) bool { return t.epochs[i].epoch >= e })
	if i == len(t.epochs) || t.epochs[i].epoch != e {
		t.epochs = append(t.epochs, epochHW{})
		copy(t.epochs[i+1:], t.epochs[i:])
		t.epochs[i] = epochHW{epoch: e}
	}
	t.epochs[i].hw = max(t.epochs[i].hw, hw)
}

// grow takes in what a leader's log has up to the n-th batch that is kept.
func (w *World) grow(t *truth, b *broker, s *stored, upto int) {
	from := t.holds(s)
	if from-s.first >= upto {
		return // all of it is known, whatever a leader of the past has behind it
	}
	if from < len(t.batches) {
		w.fail("one-truth", "partition %d: %s has committed up to %d, and parts from what was committed at %d: %s",
			t.part, b.name(), upto, t.batches[from].at.Offset, w.describe(t.part))
		return
	}
	for k := from - s.first; k >= 0 && k < upto; k++ {
		t.batches = append(t.batches, s.kept[k])
		s.agrees++
		w.newTruth(t, &s.kept[k])
	}
	w.recheck = true
}

// newTruth holds what a batch that is committed now says of producers.
func (w *World) newTruth(t *truth, k *kept) {
	it := k.batch.Entries()
	for it.Next() {
		e := it.Entry()
		if !e.Producer.IsZero() {
			if next := t.producers[e.Producer]; e.Sequence != next {
				w.fail("exactly-one-copy", "partition %d, offset %d: sequence %d of %s is committed where %d is the next", t.part, k.at.Offset, e.Sequence, e.Producer, next)
			}
			t.producers[e.Producer] = e.Sequence + 1
		}
		if e.Void {
			continue
		}
		value := string(e.Value)
		switch {
		case t.values[value]:
			w.fail("exactly-one-copy", "partition %d, offset %d: %q is committed twice", t.part, k.at.Offset, value)
		case t.refused[value]:
			w.fail("refused-is-absent", "partition %d, offset %d: %q was refused for certain", t.part, k.at.Offset, value)
		}
		t.values[value] = true
	}
	if err := it.Err(); err != nil {
		w.fail("whole-batches", "partition %d, offset %d: %v", t.part, k.at.Offset, err)
	}
}

// at finds the value of a committed record.
func (t *truth) at(o ident.Offset) (string, bool) {
	i := sort.Search(len(t.batches), func(i int) bool { return t.batches[i].after.Offset > o })
	if i == len(t.batches) {
		return "", false
	}
	it := t.batches[i].batch.Entries()
	for it.Next() {
		if e := it.Entry(); !e.Void && t.batches[i].at.Offset+ident.Offset(e.Delta) == o {
			return string(e.Value), true
		}
	}
	return "", false
}

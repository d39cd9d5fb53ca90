package state_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"tidewire/coordinator/state"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// ledger is what a group has done on a partition, record by record: the simplest account
// there could be, beside the machine's of spans.
type ledger struct {
	floor   ident.Offset
	start   ident.Offset // of the log: below it what became of records is forgotten
	fate    map[ident.Offset]string
	counts  map[ident.Offset]int
	letters map[ident.Offset]int64
	next    int64
}

const lastOffset = 50

func (l *ledger) fateOf(o ident.Offset) string {
	if _, dying := l.letters[o]; dying {
		return "dying"
	}
	return l.fate[o]
}

func (l *ledger) commit(c *cluster.CommitOf) {
	for _, i := range c.Intents {
		if i.Sequence == l.next {
			l.letters[i.Offset] = i.Sequence
			l.next++
		}
	}
	for _, o := range c.Published {
		if _, ok := l.letters[o]; ok {
			delete(l.letters, o)
			l.fate[o] = "dead"
		}
	}
	for _, s := range c.Done {
		for o := max(s.From, l.floor); o < s.To; o++ {
			if l.fateOf(o) == "" {
				l.fate[o] = "done"
			}
		}
	}
	l.start = max(l.start, c.Start)
	for o := l.floor; o < c.Start; o++ {
		if l.fateOf(o) == "" {
			l.fate[o] = "expired"
		}
	}
	l.floor = max(l.floor, c.Start)
	for l.fateOf(l.floor) != "" && l.fateOf(l.floor) != "dying" {
		l.floor++
	}
	for _, k := range c.Counts {
		if k.Deliveries > 1 {
			l.counts[k.Offset] = max(l.counts[k.Offset], k.Deliveries)
		}
	}
	l.forget()
}

func (l *ledger) reset(to ident.Offset) {
	for o := range ident.Offset(lastOffset) {
		switch {
		case o >= to:
			delete(l.fate, o)
		case o >= l.floor && l.fateOf(o) == "":
			l.fate[o] = "skipped"
		}
	}
	l.floor = to
	clear(l.counts)
}

// forget drops the counts of what has ended.
func (l *ledger) forget() {
	for o := range l.counts {
		if o < l.floor || l.fateOf(o) != "" {
			delete(l.counts, o)
		}
	}
}

// fault compares the ledger with what the machine holds.
func (l *ledger) fault(p *cluster.GroupProgress) string {
	if p.Floor != l.floor || p.Sequence != l.next || len(p.Intents) != len(l.letters) || len(p.Counts) != len(l.counts) {
		return fmt.Sprintf("floor %d, next %d, letters %v, counts %v", l.floor, l.next, l.letters, l.counts)
	}
	for _, i := range p.Intents {
		if n, ok := l.letters[i.Offset]; !ok || n != i.Sequence {
			return fmt.Sprintf("letters %v", l.letters)
		}
	}
	for _, c := range p.Counts {
		if l.counts[c.Offset] != c.Deliveries {
			return fmt.Sprintf("counts %v", l.counts)
		}
	}
	in := func(set []cluster.Span, o ident.Offset) bool {
		return slices.ContainsFunc(set, func(s cluster.Span) bool { return s.From <= o && o < s.To })
	}
	for o := range ident.Offset(lastOffset) {
		got := ""
		switch {
		case slices.ContainsFunc(p.Intents, func(i cluster.Intent) bool { return i.Offset == o }):
			got = "dying"
		case in(p.Dead, o):
			got = "dead"
		case in(p.Skipped, o):
			got = "skipped"
		case in(p.Done, o), o < p.Floor:
			got = "done"
		}
		if want := l.fateOf(o); got != want && (o >= l.start || want == "") {
			return fmt.Sprintf("record %d is %q, not %q", o, got, want)
		}
	}
	return ""
}

// Commits, retries and resets in any order: spans say the same as an account of every
// single record, each of which ends once.
func TestSpansSayWhatBecameOfEachRecord(t *testing.T) {
	ends := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		m := state.New()
		index := uint64(1)
		do := func(c cluster.Change) cluster.Answer {
			index++
			a, err := m.Apply(index, mustEncode(t, &state.Command{Request: state.RequestID{4, byte(index >> 8), byte(index)}, Change: c}))
			if err != nil || a.Refusal != nil {
				t.Fatal(a.Refusal, err)
			}
			return a
		}
		one := ident.NodeID{1}
		do(cluster.Change{Register: &cluster.Register{Node: cluster.Node{ID: one, Name: "a", Roles: []string{"broker"}}}})
		do(cluster.Change{Activate: &cluster.Activate{Node: one, Epoch: 2}})
		do(cluster.Change{Create: &cluster.Create{ID: ident.TopicID{1}, Spec: cluster.TopicSpec{Name: "x"}}})
		begin := ident.Offset(rapid.SampledFrom([]int{0, 7}).Draw(t, "begin"))
		g := do(cluster.Change{GroupRegister: &cluster.GroupRegister{ID: ident.GroupID{1}, Topic: ident.TopicID{1}, Name: "g", Patch: cluster.GroupPatch{Mode: new(cluster.Shared)}, Starts: []cluster.Position{{Offset: begin}}}}).Group
		l := &ledger{floor: begin, fate: map[ident.Offset]string{}, counts: map[ident.Offset]int{}, letters: map[ident.Offset]int64{}}
		for o := range begin {
			l.fate[o] = "skipped"
		}
		d := &drawer{t, m.Snapshot(), m}
		var former []cluster.CommitOf
		for range rapid.IntRange(1, 60).Draw(t, "commits") {
			if rapid.IntRange(0, 12).Draw(t, "reset") == 0 {
				to := ident.Offset(rapid.IntRange(0, 35).Draw(t, "to"))
				g = do(cluster.Change{GroupReset: &cluster.GroupReset{Group: g.ID, Starts: []cluster.Position{{Offset: to}}}}).Group
				l.reset(to)
			} else {
				d.s = m.Snapshot()
				c := d.commitOf(g, &d.s.ByID[g.Topic].Partitions[0])
				c.Start = min(c.Start, lastOffset)
				if len(former) > 0 && rapid.IntRange(0, 3).Draw(t, "late") == 0 { // one of before comes again
					c = rapid.SampledFrom(former).Draw(t, "one of before")
				}
				c.Member, c.Epoch = "", 0
				former = append(former, c)
				if do(cluster.Change{Commit: &cluster.Commit{Leader: cluster.Life{Node: one, Epoch: 2}, Of: []cluster.CommitOf{c}}}).Taken[0] {
					l.commit(&c)
				}
			}
			p := progressOf(m, g, 0)
			if wrong := l.fault(p); wrong != "" {
				t.Fatalf("%s\n%+v", wrong, *p)
			}
			if _, err := state.Restore(encode(t, m)); err != nil {
				t.Fatal(err)
			}
		}
		for o := range ident.Offset(lastOffset) {
			ends[l.fateOf(o)]++
		}
	})
	t.Logf("%v", ends)
	for _, end := range []string{"done", "dead", "skipped", "expired", "dying", ""} {
		if ends[end] == 0 {
			t.Errorf("no record is %q", end)
		}
	}
}

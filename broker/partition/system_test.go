package partition

import (
	"bytes"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"tidewire/internal/ident"
	"tidewire/internal/record"
)

var dead = ident.SystemProducer(ident.GroupID{1}, 4)

func letter(sequence int64) *record.Record {
	return &record.Record{Producer: dead, Sequence: sequence, ContentType: "text/plain", Value: fmt.Append(nil, "letter ", sequence)}
}

// One of the cluster's own producers comes with any number, whatever the log remembers:
// after another life of the topic, or with one record left out. What came before is found.
func TestTheClustersOwnProducersLeaveNumbersOut(t *testing.T) {
	l := &log{m: New(0)}
	steps := []record.Batch{
		batch(letter(7), letter(7)), batch(letter(9), letter(3)), batch(letter(8)),
		batch(letter(3), letter(9), letter(7), letter(8), letter(0)),
	}
	want := "[kept at 0 duplicate of 0 kept at 1 kept at 2 kept at 3 duplicate of 2 duplicate of 1 duplicate of 0 duplicate of 3 kept at 4]"
	var got []string
	for i, b := range steps {
		got = append(got, describe(l.append(t, b, int64(i)))...)
	}
	if fmt.Sprint(got) != want {
		t.Errorf("got  %v\nwant %s", got, want)
	}
	for sequence, repeat := range map[int64]bool{0: true, 3: true, 9: true, 1: false, 10: false} {
		if _, ok := l.m.Repeats(batch(letter(sequence))); ok != repeat {
			t.Errorf("that %d is a repeat: %v", sequence, ok)
		}
	}
}

// What is refused for what it is comes again with the same number, once it can be kept.
func TestARefusedRecordOfTheClustersOwnComesAgain(t *testing.T) {
	l := &log{m: New(0), most: 3}
	if got := describe(l.append(t, batch(letter(0)), 0)); got[0] != "message-too-large" || len(l.batches) > 0 {
		t.Errorf("%v, %d batches", got, len(l.batches))
	}
	l.most = 100
	if got := describe(l.append(t, batch(letter(0)), 0)); got[0] != "kept at 0" {
		t.Error(got)
	}
}

// They do not expire, through snapshots and folds, and the last 1,024 of each are known,
// in the order in which they came.
func TestTheClustersOwnProducersDoNotExpire(t *testing.T) {
	const day = 24 * 60 * 60 * 1000
	l := &log{m: New(0)}
	l.append(t, batch(letter(5)), 0)
	l.append(t, batch(sequenced(1, 0)), 0)
	for i := range int64(WindowRecords - 2) {
		l.append(t, batch(letter(100_000-2*i)), day*(i+1))
	}
	l.append(t, batch(sequenced(2, 0)), 2000*day)
	l.append(t, batch(letter(6)), 3000*day)
	for name, m := range map[string]*Machine{"itself": l.m, "its fold": fold(t, l), "its snapshot": restored(t, l.m)} {
		here := &log{m: m}
		if got := describe(here.append(t, batch(letter(5), sequenced(1, 1)), 4000*day)); fmt.Sprint(got) != "[duplicate of 0 unknown-producer expected=0]" {
			t.Errorf("%s: %v", name, got)
		}
		here.append(t, batch(letter(200_000)), 4000*day)
		if got := describe(here.append(t, batch(letter(5)), 4000*day)); got[0] == "duplicate of 0" {
			t.Errorf("%s knows more than its window", name)
		}
	}
}

func fold(t interface{ Fatal(...any) }, l *log) *Machine {
	m := New(0)
	for _, b := range l.batches {
		if err := m.Fold(b, rules); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func restored(t interface{ Fatal(...any) }, m *Machine) *Machine {
	again, err := Restore(m.Snapshot(), m.End())
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// A crowd pushes out all others before it touches one of them.
func TestACrowdPushesOutTheClustersOwnProducersLast(t *testing.T) {
	s := newProducers()
	s.add(dead, run{count: 1})
	for n := range MaxProducers {
		var id ident.ProducerID
		id[0], id[1], id[2], id[3] = 1, byte(n>>16), byte(n>>8), byte(n)
		s.add(id, run{count: 1, timestamp: int64(n)})
	}
	if len(s.byID) != MaxProducers || s.get(dead) == nil {
		t.Errorf("%d producers", len(s.byID))
	}
	for n := range MaxProducers {
		s.add(ident.SystemProducer(ident.GroupID{2}, ident.Index(n)), run{count: 1})
	}
	if len(s.byID) != MaxProducers || s.own.Len() != MaxProducers || s.get(dead) != nil {
		t.Errorf("%d producers, %d of them the cluster's own", len(s.byID), s.own.Len())
	}
}

func TestTheClustersOwnProducersAndTheFoldOfTheirLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &log{m: New(0)}
		kept := map[int64]ident.Offset{}
		for range rapid.IntRange(1, 20).Draw(t, "batches") {
			var b record.Builder
			var want []string
			end := l.m.End()
			for range rapid.IntRange(1, 4).Draw(t, "records") {
				s := rapid.Int64Range(0, 20).Draw(t, "sequence")
				if at, ok := kept[s]; ok {
					want = append(want, fmt.Sprint("duplicate of ", at))
				} else {
					want = append(want, fmt.Sprint("kept at ", end))
					kept[s] = end
					end++
				}
				b.Add(letter(s))
			}
			if got := describe(l.append(t, b.Seal(), rapid.Int64Range(0, 1<<40).Draw(t, "ms"))); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("got  %v\nwant %v", got, want)
			}
		}
		if !bytes.Equal(fold(t, l).Snapshot(), l.m.Snapshot()) || !bytes.Equal(restored(t, l.m).Snapshot(), l.m.Snapshot()) {
			t.Fatal("snapshot and fold give another state than the appends")
		}
	})
}

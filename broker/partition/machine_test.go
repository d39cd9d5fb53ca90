package partition

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
)

var rules = Rules{Range: ident.FullRange, MaxMessageBytes: 1 << 20, IdempotencyWindow: 2 * time.Minute}

func producerID(n int) (id ident.ProducerID) {
	id[0], id[1] = 0xaa, byte(n)
	return id
}

func sequenced(p int, sequence int64) *record.Record {
	return &record.Record{Producer: producerID(p), Sequence: sequence, ContentType: "text/plain", Value: fmt.Append(nil, p, "/", sequence)}
}

func keyedBy(key, body string) *record.Record {
	r := &record.Record{ContentType: "text/plain", Value: []byte(body)}
	r.Idempotency = &record.Idempotency{Key: key, Hash: record.ContentHash(r)}
	return r
}

func batch(records ...*record.Record) record.Batch {
	var b record.Builder
	for _, r := range records {
		b.Add(r)
	}
	return b.Seal()
}

func void(p int, sequence int64) record.Batch {
	var b record.Builder
	b.Void(producerID(p), sequence)
	return b.Seal()
}

// log is what a leader appended, for folding it again.
type log struct {
	m       *Machine
	batches []record.Batch
	most    int // bytes of a record; 0: those of rules
}

func (l *log) append(t interface{ Fatal(...any) }, b record.Batch, now int64) Plan {
	here := rules
	if l.most > 0 {
		here.MaxMessageBytes = l.most
	}
	plan, err := l.m.Append(b, now, here)
	if err != nil {
		t.Fatal(err)
	}
	if plan.Batch != nil {
		plan.Batch.Assign(record.Place{Base: plan.Base, Timestamp: plan.Timestamp, Epoch: 1})
		l.batches = append(l.batches, plan.Batch)
	}
	return plan
}

// describe says in words what became of each record of a batch.
func describe(p Plan) (out []string) {
	for _, r := range p.Results {
		switch {
		case r.Err != nil:
			text := fault.KindOf(r.Err).Code()
			if e, ok := fault.As(r.Err).Fields["expected"]; ok {
				text += fmt.Sprintf(" expected=%v", e)
			}
			out = append(out, text)
		case r.Duplicate:
			out = append(out, fmt.Sprintf("duplicate of %d", r.Offset))
		default:
			out = append(out, fmt.Sprintf("kept at %d", r.Offset))
		}
	}
	return out
}

func TestVerdicts(t *testing.T) {
	const minute = 60_000
	small := rules
	small.MaxMessageBytes = 3
	half := rules
	half.Range = ident.HashRange{Lo: 0, Hi: 1}
	for _, c := range []struct {
		name  string
		steps []func(*log) (record.Batch, int64)
		want  []string
	}{
		{
			"a producer counts from 0 without gaps", at(batch(sequenced(1, 0), sequenced(1, 1), sequenced(1, 3), sequenced(1, 2))),
			[]string{"kept at 0", "kept at 1", "out-of-order-sequence expected=2", "kept at 2"},
		},
		{
			"a repeat finds the first place, in the same batch too", at(batch(sequenced(1, 0), sequenced(1, 0)), batch(sequenced(1, 0), sequenced(1, 1))),
			[]string{"kept at 0", "duplicate of 0", "duplicate of 0", "kept at 1"},
		},
		{"an unknown producer begins at 0", at(batch(sequenced(1, 5))), []string{"unknown-producer expected=0"}},
		{"producers count apart", at(batch(sequenced(1, 0), sequenced(2, 0), sequenced(1, 1))), []string{"kept at 0", "kept at 1", "kept at 2"}},
		{
			"a void uses a number up and takes no offset", at(batch(sequenced(1, 0)), void(1, 1), batch(sequenced(1, 2))),
			[]string{"kept at 0", "kept at -1", "kept at 1"},
		},
		{"a void again is fine", at(void(1, 0), void(1, 0), batch(sequenced(1, 1))), []string{"kept at -1", "kept at -1", "kept at 0"}},
		{"a void out of order is refused like a record", at(void(1, 3)), []string{"unknown-producer expected=0"}},
		{"a record under a number that was used up is refused", at(void(1, 0), batch(sequenced(1, 0))), []string{"kept at -1", "invalid expected=1"}},
		{
			"an Idempotency-Key finds the first place", at(batch(keyedBy("a", "x")), batch(keyedBy("b", "x"), keyedBy("a", "x"))),
			[]string{"kept at 0", "kept at 1", "duplicate of 0"},
		},
		{"an Idempotency-Key with another body is refused", at(batch(keyedBy("a", "x"), keyedBy("a", "y"))), []string{"kept at 0", "idempotency-key-reused"}},
		{"an Idempotency-Key is forgotten after the window", later(2*minute+1, batch(keyedBy("a", "x")), batch(keyedBy("a", "x"))), []string{"kept at 0", "kept at 1"}},
		{"but not before", later(2*minute, batch(keyedBy("a", "x")), batch(keyedBy("a", "x"))), []string{"kept at 0", "duplicate of 0"}},
		{"a producer is forgotten after an hour", later(60*minute+1, batch(sequenced(1, 0)), batch(sequenced(1, 1))), []string{"kept at 0", "unknown-producer expected=0"}},
		{"but not before", later(60*minute, batch(sequenced(1, 0)), batch(sequenced(1, 1))), []string{"kept at 0", "kept at 1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &log{m: New(0)}
			var got []string
			for _, step := range c.steps {
				b, now := step(l)
				got = append(got, describe(l.append(t, b, now))...)
			}
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Fatalf("got  %q\nwant %q", got, c.want)
			}
		})
	}
	for _, c := range []struct {
		rules Rules
		want  fault.Kind
	}{{small, fault.MessageTooLarge}, {half, fault.WrongPartition}} {
		plan, err := New(0).Append(batch(&record.Record{Key: []byte("k"), Value: []byte("long")}), 0, c.rules)
		if err != nil || plan.Batch != nil || !fault.Is(plan.Results[0].Err, c.want) {
			t.Errorf("want %v, got %+v, %v", c.want, plan, err)
		}
	}
}

func TestAnOriginalIsFoundWithinTheWindow(t *testing.T) {
	l := &log{m: New(0)}
	r := keyedBy("a", "x")
	key := *r.Idempotency
	if _, ok := l.m.Original(&key, 0, rules); ok {
		t.Error("found in an empty log")
	}
	l.append(t, batch(sequenced(1, 0), r), 1000)
	window := rules.IdempotencyWindow.Milliseconds()
	for _, c := range []struct {
		now  int64
		want bool
	}{{0, true}, {1000 + window, true}, {1001 + window, false}} {
		if got, ok := l.m.Original(&key, c.now, rules); ok != c.want || ok && (got.Offset != 1 || got.Timestamp != 1000 || !got.Duplicate || got.Err != nil) {
			t.Errorf("at %d: %+v, %v", c.now, got, ok)
		}
	}
	key.Hash[0]++
	if got, ok := l.m.Original(&key, 1000, rules); !ok || !fault.Is(got.Err, fault.IdempotencyKeyReused) {
		t.Errorf("another content: %+v, %v", got, ok)
	}
	if l.m.End() != 2 {
		t.Error("something was kept")
	}
}

// A record that is refused for what it is uses its number up, so that those on
// their way behind it are kept.
func TestRefusalsUseNumbersUp(t *testing.T) {
	long, reused := sequenced(1, 1), keyedBy("a", "y")
	long.Value = bytes.Repeat([]byte("x"), 100)
	reused.Producer, reused.Sequence = producerID(1), 3
	first := keyedBy("a", "x")
	again := keyedBy("a", "x")
	again.Producer, again.Sequence = producerID(1), 5
	l := &log{m: New(0), most: 50}
	b := batch(first, sequenced(1, 0), long, sequenced(1, 2), reused, sequenced(1, 4), again, sequenced(1, 6))
	want := "[kept at 0 kept at 1 message-too-large kept at 2 idempotency-key-reused kept at 3 duplicate of 0 kept at 4]"
	if got := describe(l.append(t, b, 0)); fmt.Sprint(got) != want {
		t.Fatalf("got  %v\nwant %s", got, want)
	}
	folded := New(0)
	for _, b := range l.batches {
		if err := folded.Fold(b, rules); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(folded.Snapshot(), l.m.Snapshot()) {
		t.Fatal("the log does not say what the machine knows")
	}
	want = "[duplicate of 0 duplicate of 1 invalid expected=7 duplicate of 2 invalid expected=7 duplicate of 3 duplicate of 0 duplicate of 4]"
	if got := describe(l.append(t, b, 0)); fmt.Sprint(got) != want {
		t.Fatalf("a repeat\ngot  %v\nwant %s", got, want)
	}
}

// More producers than can be remembered push out the longest silent ones, but
// none that may still repeat; and the log alone brings about the same.
func TestACrowdOfProducersPushesOutTheSilent(t *testing.T) {
	l := &log{m: New(0)}
	fresh := func(n int) record.Batch {
		var b record.Builder
		var id ident.ProducerID
		id[0], id[1], id[2], id[3] = 1, byte(n>>16), byte(n>>8), byte(n)
		b.Add(&record.Record{Producer: id, ContentType: "text/plain", Value: []byte("x")})
		return b.Seal()
	}
	for n := range MaxProducers {
		l.append(t, fresh(n), 1000+int64(n/1000)) // 132 ms in all
	}
	steps := []struct {
		b    record.Batch
		ms   int64
		want string
	}{
		{fresh(MaxProducers), 2000, "limit"},
		{fresh(7), 2000, "duplicate of 7"},
		{fresh(MaxProducers), 1000 + CrowdedAge.Milliseconds(), fmt.Sprint("kept at ", MaxProducers)}, // producer 0 goes
		{fresh(1), 1000 + CrowdedAge.Milliseconds(), "duplicate of 1"},
		{fresh(0), 1000 + CrowdedAge.Milliseconds(), fmt.Sprint("kept at ", MaxProducers+1)}, // producer 1 goes, a repeat after its time
	}
	for i, s := range steps {
		if got := describe(l.append(t, s.b, s.ms)); got[0] != s.want {
			t.Errorf("step %d: %s, want %s", i, got[0], s.want)
		}
	}
	folded := New(0)
	for _, b := range l.batches {
		if err := folded.Fold(b, rules); err != nil {
			t.Fatal(err)
		}
	}
	if len(folded.producers.byID) != MaxProducers || !bytes.Equal(folded.Snapshot(), l.m.Snapshot()) {
		t.Fatal("the log does not say what the machine knows")
	}
}

// What was kept is found again whatever has changed since: a lower bound, or a
// disk with no room for anything new.
func TestRepeatsAreFoundBeforeAnythingIsRefused(t *testing.T) {
	l := &log{m: New(0)}
	kept := batch(keyedBy("a", "long enough"), sequenced(1, 0))
	l.append(t, kept, 0)
	l.most = 3
	if got := describe(l.append(t, kept, 0)); fmt.Sprint(got) != "[duplicate of 0 duplicate of 1]" {
		t.Error(got)
	}
	if results, ok := l.m.Repeats(kept); !ok || fmt.Sprint(describe(Plan{Results: results})) != "[duplicate of 0 duplicate of 1]" {
		t.Error(results, ok)
	}
	for _, b := range []record.Batch{
		batch(keyedBy("a", "long enough"), sequenced(1, 1)), batch(keyedBy("a", "other")), batch(keyedBy("b", "x")), batch(sequenced(2, 0)), void(1, 1),
		batch(&record.Record{ContentType: "text/plain", Value: []byte("x")}),
	} {
		if _, ok := l.m.Repeats(b); ok {
			t.Error("something new passes for a repeat")
		}
	}
}

// at makes steps at time 0.
func at(batches ...record.Batch) []func(*log) (record.Batch, int64) { return later(0, batches...) }

// later makes steps so many ms apart.
func later(ms int64, batches ...record.Batch) (out []func(*log) (record.Batch, int64)) {
	for i, b := range batches {
		out = append(out, func(*log) (record.Batch, int64) { return b, int64(i) * ms })
	}
	return out
}

func TestTheWindowHoldsTheLast1024(t *testing.T) {
	l := &log{m: New(0)}
	for i := range int64(3000) { // one a batch, so that no run joins
		l.append(t, batch(sequenced(1, i)), i)
		l.append(t, batch(sequenced(2, i)), i)
	}
	if got := describe(l.append(t, batch(sequenced(1, 3000-WindowRecords)), 3000)); got[0] != fmt.Sprintf("duplicate of %d", 2*(3000-WindowRecords)) {
		t.Fatal(got)
	}
	if got := describe(l.append(t, batch(sequenced(1, 0)), 3000)); got[0] != "duplicate of -1" {
		t.Fatal("older than the window is a duplicate without a place, never out of order:", got)
	}
}

func TestTheClockNeverGoesBack(t *testing.T) {
	l := &log{m: New(0)}
	l.append(t, batch(sequenced(1, 0)), 1000)
	if p := l.append(t, batch(sequenced(1, 1)), 500); p.Timestamp != 1000 {
		t.Fatalf("timestamp %d after 1000", p.Timestamp)
	}

	// Where there is nothing to remember, the log alone knows the time.
	plain := &log{m: New(0)}
	plain.append(t, batch(&record.Record{Value: []byte("v"), ContentType: "t"}), 1000)
	again, err := Restore(plain.m.Snapshot(), plain.m.End())
	if err != nil {
		t.Fatal(err)
	}
	again.NotBefore(1000) // as whoever leads does
	if p := (&log{m: again}).append(t, batch(&record.Record{Value: []byte("v"), ContentType: "t"}), 500); p.Timestamp != 1000 {
		t.Fatalf("timestamp %d after 1000 and a restart", p.Timestamp)
	}
}

// twin is the sequence window in the fewest words: everything is remembered.
type twin struct {
	end  ident.Offset
	seen map[ident.ProducerID][]ident.Offset // by sequence; -1: void
	most int                                 // bytes of a record; changes
}

func (w *twin) judge(e *record.Entry) string {
	s := w.seen[e.Producer]
	switch {
	case len(s) == 0 && e.Sequence > 0:
		return "unknown-producer expected=0"
	case e.Sequence > int64(len(s)):
		return fmt.Sprintf("out-of-order-sequence expected=%d", len(s))
	case e.Void && e.Sequence < int64(len(s)):
		return "kept at -1"
	case e.Sequence < int64(len(s)) && s[e.Sequence] < 0:
		return fmt.Sprintf("invalid expected=%d", len(s))
	case e.Sequence < int64(len(s)):
		return fmt.Sprintf("duplicate of %d", s[e.Sequence])
	case e.Void:
		w.seen[e.Producer] = append(s, -1)
		return "kept at -1"
	case e.Bytes() > w.most:
		w.seen[e.Producer] = append(s, -1)
		return "message-too-large"
	}
	w.seen[e.Producer] = append(s, w.end)
	w.end++
	return fmt.Sprintf("kept at %d", w.end-1)
}

func TestTheMachineEqualsItsTwinAndTheFoldOfItsLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, w := &log{m: New(0)}, &twin{seen: map[ident.ProducerID][]ident.Offset{}}
		now := int64(0)
		for range rapid.IntRange(1, 30).Draw(t, "batches") {
			w.most = rapid.IntRange(2, 5).Draw(t, "most") // "1/12" has four
			l.most = w.most
			var b record.Builder
			for range rapid.IntRange(1, 6).Draw(t, "records") {
				p, s := rapid.IntRange(1, 3).Draw(t, "producer"), rapid.Int64Range(0, 12).Draw(t, "sequence")
				if rapid.IntRange(0, 5).Draw(t, "void") == 0 {
					b.Void(producerID(p), s)
				} else {
					b.Add(sequenced(p, s))
				}
			}
			sealed := b.Seal()
			var want []string
			it := sealed.Entries()
			for it.Next() {
				want = append(want, w.judge(it.Entry()))
			}
			now += rapid.Int64Range(0, 5).Draw(t, "ms")
			if got := describe(l.append(t, sealed, now)); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("got  %q\nwant %q", got, want)
			}
			if l.m.End() != w.end {
				t.Fatalf("end %d, want %d", l.m.End(), w.end)
			}
		}
		cut := rapid.IntRange(0, len(l.batches)).Draw(t, "cut")
		half := New(0)
		for _, b := range l.batches[:cut] {
			if err := half.Fold(b, rules); err != nil {
				t.Fatal(err)
			}
		}
		again, err := Restore(half.Snapshot(), half.End())
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range l.batches[cut:] {
			if err := again.Fold(b, rules); err != nil {
				t.Fatal(err)
			}
		}
		if again.End() != l.m.End() || !bytes.Equal(again.Snapshot(), l.m.Snapshot()) {
			t.Fatalf("snapshot and fold give another state than the appends")
		}
	})
}

func FuzzRestore(f *testing.F) {
	l := &log{m: New(0)}
	l.append(f, batch(sequenced(1, 0), keyedBy("a", "b"), sequenced(2, 0)), 5)
	l.append(f, void(1, 1), 6)
	f.Add(l.m.Snapshot())
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Restore(data, 10)
		if err != nil {
			return
		}
		if _, err := m.Append(batch(sequenced(1, 0), sequenced(1, 1)), 7, rules); err != nil {
			t.Fatal(err)
		}
	})
}

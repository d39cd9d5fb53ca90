package record

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"tidewire/internal/ident"
)

// said is what a walk over a batch says of its records.
func said(b Batch) (places, keys []string, err error) {
	it := b.Entries()
	for it.Next() {
		if e := it.Entry(); !e.Void {
			places = append(places, fmt.Sprintf("%d %q %v", e.Delta, e.Key, e.Key == nil))
		}
	}
	err = b.Keys(func(delta int, key []byte) bool {
		keys = append(keys, fmt.Sprintf("%d %q %v", delta, key, key == nil))
		return true
	})
	return places, keys, err
}

func TestKeysAreWhatEntriesSay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b Builder
		for range rapid.IntRange(1, 20).Draw(t, "entries") {
			if rapid.IntRange(0, 4).Draw(t, "void") == 0 {
				b.Void(ident.ProducerID{1}, 7)
				continue
			}
			r := drawRecord(t)
			b.Add(&r)
		}
		places, keys, err := said(b.Seal())
		if err != nil || fmt.Sprint(places) != fmt.Sprint(keys) {
			t.Fatalf("%v\n%q\n%q", err, places, keys)
		}
	})
}

func TestPickedRecordsStayWhereTheyAre(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b Builder
		want := map[ident.Offset]string{}
		pick := map[int]bool{}
		n := rapid.IntRange(1, 20).Draw(t, "entries")
		for range n {
			if rapid.IntRange(0, 4).Draw(t, "void") == 0 {
				b.Void(ident.ProducerID{1}, 7)
				continue
			}
			r := drawRecord(t)
			if b.Add(&r); rapid.Bool().Draw(t, "pick") {
				pick[b.span-1] = true
				want[100+ident.Offset(b.span-1)] = fmt.Sprintf("%+v", Record{r.Key, r.Value, r.Tombstone, r.ContentType, r.Headers, r.Producer, r.Sequence, nil})
			}
		}
		whole := b.Seal()
		whole.Assign(Place{Partition: ident.Partition{Index: 3}, Epoch: 4, Base: 100, Timestamp: 5})
		before := fmt.Sprint(whole)
		got, err := whole.Pick(func(delta int) bool { return pick[delta] })
		if err != nil || fmt.Sprint(whole) != before {
			t.Fatal(err, "the batch was changed")
		}
		if len(pick) == 0 {
			if got != nil {
				t.Fatal("nothing was picked")
			}
			return
		}
		if err := got.Verify(); err != nil {
			t.Fatal(err)
		}
		h, all := got.Header(), whole.Header()
		if h.Base != all.Base || h.Next() != all.Next() || h.Partition != all.Partition || h.Epoch != all.Epoch || h.Timestamp != all.Timestamp || h.Entries != len(pick) {
			t.Fatalf("%+v of %+v", h, all)
		}
		it := got.Entries()
		for it.Next() {
			r := it.Entry().Record
			o := h.Base + ident.Offset(it.Entry().Delta)
			if said := fmt.Sprintf("%+v", Record{r.Key, r.Value, r.Tombstone, r.ContentType, r.Headers, r.Producer, r.Sequence, nil}); said != want[o] {
				t.Fatalf("offset %d: %s\n%s", o, said, want[o])
			}
			delete(want, o)
		}
		if it.Err() != nil || len(want) > 0 {
			t.Fatal(it.Err(), want)
		}
	})
}

func FuzzKeys(f *testing.F) {
	var b Builder
	b.Add(&Record{Key: []byte("k"), Value: []byte("v"), ContentType: JSON, Producer: ident.ProducerID{1}, Sequence: 3})
	b.Void(ident.ProducerID{1}, 4)
	b.Add(&Record{Value: []byte("v"), ContentType: "text/plain"})
	f.Add([]byte(b.Seal()))
	f.Fuzz(func(t *testing.T, raw []byte) {
		places, keys, err := said(Batch(raw))
		if len(keys) < len(places) {
			t.Fatalf("%v\n%q\n%q", err, places, keys)
		}
	})
}

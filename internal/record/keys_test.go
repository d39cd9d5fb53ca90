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

package record

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"tidewire/internal/ident"
)

func drawRecord(t *rapid.T) Record {
	r := Record{Value: rapid.SliceOf(rapid.Byte()).Draw(t, "value")}
	if rapid.Bool().Draw(t, "keyed") {
		r.Key = []byte(rapid.StringN(1, 8, 32).Draw(t, "key"))
	}
	r.ContentType = rapid.SampledFrom([]string{JSON, "text/plain", "application/octet-stream"}).Draw(t, "type")
	for range rapid.IntRange(0, 3).Draw(t, "headers") {
		r.Headers = append(r.Headers, HeaderField{rapid.String().Draw(t, "name"), rapid.String().Draw(t, "header")})
	}
	if rapid.Bool().Draw(t, "sequenced") {
		r.Producer[0] = byte(rapid.IntRange(1, 20).Draw(t, "producer"))
		r.Sequence = rapid.Int64Range(0, ident.MaxSequence).Draw(t, "sequence")
	} else if rapid.Bool().Draw(t, "idempotent") {
		r.Idempotency = &Idempotency{Principal: rapid.String().Draw(t, "principal"), Key: rapid.String().Draw(t, "idem"), Hash: ContentHash(&r)}
	}
	return r
}

func sameRecord(a, b *Record) bool {
	if !bytes.Equal(a.Key, b.Key) || (a.Key == nil) != (b.Key == nil) || !bytes.Equal(a.Value, b.Value) || a.Tombstone != b.Tombstone ||
		a.ContentType != b.ContentType || a.Producer != b.Producer || a.Sequence != b.Sequence || len(a.Headers) != len(b.Headers) {
		return false
	}
	for i := range a.Headers {
		if a.Headers[i] != b.Headers[i] {
			return false
		}
	}
	if a.Idempotency == nil || b.Idempotency == nil {
		return a.Idempotency == b.Idempotency
	}
	return *a.Idempotency == *b.Idempotency
}

func TestABatchGivesBackWhatWasPutIn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b Builder
		type put struct {
			record Record
			void   bool
		}
		var puts []put
		for range rapid.IntRange(1, 30).Draw(t, "entries") {
			r := drawRecord(t)
			if !r.Producer.IsZero() && rapid.Bool().Draw(t, "void") {
				b.Void(r.Producer, r.Sequence)
				puts = append(puts, put{Record{Producer: r.Producer, Sequence: r.Sequence}, true})
				continue
			}
			b.Add(&r)
			puts = append(puts, put{r, false})
		}
		batch := b.Seal()
		place := Place{Epoch: 3, Base: 41, Timestamp: 1_700_000_000_000}
		place.Partition.Topic[5], place.Partition.Index = 9, 7
		batch.Assign(place)
		if err := batch.Verify(); err != nil {
			t.Fatal(err)
		}
		h := batch.Header()
		if h.Partition != place.Partition || h.Epoch != 3 || h.Base != 41 || h.Timestamp != place.Timestamp || h.Entries != len(puts) {
			t.Fatalf("header %+v", h)
		}
		it := batch.Entries()
		span := 0
		for i := 0; it.Next(); i++ {
			e := it.Entry()
			if e.Void != puts[i].void || !sameRecord(&e.Record, &puts[i].record) {
				t.Fatalf("entry %d is %+v, want %+v", i, e, puts[i])
			}
			if e.Delta != span {
				t.Fatalf("entry %d has delta %d, want %d", i, e.Delta, span)
			}
			if !e.Void {
				span++
			}
		}
		if it.Err() != nil || span != h.Span {
			t.Fatalf("err %v, %d records, span %d", it.Err(), span, h.Span)
		}
	})
}

func sample() Batch {
	var b Builder
	b.Add(&Record{Key: []byte("bus-1"), Value: []byte(`{"speed":30.4}`), ContentType: JSON, Headers: []HeaderField{{"trace", "abc"}}})
	b.Add(&Record{Value: []byte("hello"), ContentType: "text/plain", Producer: ident.ProducerID{1}, Sequence: 5})
	b.Void(ident.ProducerID{1}, 6)
	batch := b.Seal()
	batch.Assign(Place{Epoch: 1, Base: 10, Timestamp: 1})
	return batch
}

func TestEveryFlippedBitIsNoticed(t *testing.T) {
	good := sample()
	for i := range len(good) * 8 {
		bad := bytes.Clone(good)
		bad[i/8] ^= 1 << (i % 8)
		if err := Batch(bad).Verify(); !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrShort) {
			t.Fatalf("bit %d of byte %d: %v", i%8, i/8, err)
		}
	}
}

func TestACutBatchIsShort(t *testing.T) {
	good := sample()
	for n := range len(good) {
		if _, _, err := Cut(good[:n]); !errors.Is(err, ErrShort) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	first, rest, err := Cut(append(bytes.Clone(good), "more"...))
	if err != nil || !bytes.Equal(first, good) || string(rest) != "more" {
		t.Fatalf("%v, %d bytes, rest %q", err, len(first), rest)
	}
}

func TestFilterKeepsWhatIsPicked(t *testing.T) {
	b, err := sample().Filter(func(i int) Fate {
		if i == 0 {
			return Drop
		}
		return Keep
	})
	if err != nil {
		t.Fatal(err)
	}
	it := b.Entries()
	if !it.Next() || string(it.Entry().Value) != "hello" || it.Entry().Delta != 0 || !it.Next() || !it.Entry().Void || it.Next() {
		t.Fatalf("filtered wrongly: %+v, %v", it.Entry(), it.Err())
	}
	if none, err := sample().Filter(func(int) Fate { return Drop }); none != nil || err != nil {
		t.Fatalf("%v, %v", none, err)
	}
}

func FuzzBatch(f *testing.F) {
	f.Add([]byte(sample()))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, _, err := Cut(data)
		if err != nil {
			return
		}
		_ = b.Verify()
		entries := 0
		it := b.Entries() // checksums or not, walking must be safe
		for it.Next() {
			entries++
			_ = it.Entry().Bytes()
		}
		if it.Err() == nil && entries != b.Header().Entries {
			t.Fatalf("%d entries, header says %d", entries, b.Header().Entries)
		}
	})
}

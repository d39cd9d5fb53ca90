package storage

import (
	"errors"
	"io"
	"testing"

	"tidewire/broker/journal"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/testkit/faultfs"
)

// memory makes bytes a file that can be walked.
func memory(t testing.TB, b []byte) io.ReaderAt {
	t.Helper()
	f, err := faultfs.New(0).Create("/f")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return f
}

func segmentBytes() (b []byte, ends []int) {
	for i := range 3 {
		b = append(b, batch(part(1), 1, ident.Offset(2*i), int64(i), 2, 40)...)
		ends = append(ends, len(b))
	}
	return b, ends
}

// Any bytes give a prefix of whole, checked batches and then a clear end.
func FuzzSegment(f *testing.F) {
	good, _ := segmentBytes()
	f.Add(good, 0, 0)
	f.Add(good[:len(good)-3], 100, 200)
	f.Add([]byte("garbage that is no batch at all, but long enough for a header of one, is it not?"), 1, 1)
	f.Fuzz(func(t *testing.T, b []byte, flip, cut int) {
		walk := func(b []byte) (n int, err error) {
			w := &walker{f: memory(t, b), part: part(1), end: int64(len(b))}
			for {
				got, h, err := w.step()
				if err != nil {
					var bad *badBatch
					if !errors.Is(err, io.EOF) && !errors.As(err, &bad) {
						t.Fatalf("an error of no kind: %v", err)
					}
					return n, err
				}
				if got.Verify() != nil || h.Partition != part(1) {
					t.Fatal("a bad batch passed")
				}
				n++
			}
		}
		if _, err := walk(b); err == nil {
			t.Fatal("a walk without an end")
		}
		spoilt := append([]byte(nil), good...)
		i := (flip%len(good) + len(good)) % len(good)
		spoilt[i] ^= 1 << (flip & 7)
		_, ends := segmentBytes()
		want := 0
		for want < len(ends) && i >= ends[want] {
			want++
		}
		if n, err := walk(spoilt); n != want || errors.Is(err, io.EOF) {
			t.Fatalf("%d batches after a flip at byte %d (%v), want %d", n, i, err, want)
		}
		k := (cut%len(good) + len(good)) % len(good)
		want = 0
		for want < len(ends) && k >= ends[want] {
			want++
		}
		if n, _ := walk(good[:k]); n != want {
			t.Fatalf("%d batches of a file cut at byte %d, want %d", n, k, want)
		}
	})
}

func FuzzIndex(f *testing.F) {
	seed := indexSeed(part(1), 7)
	var good []byte
	for i := range 4 {
		good = appendIndex(good, seed, indexEntry{7 + ident.Offset(i), int64(100 * i), int64(i), 1})
	}
	f.Add(good, 0)
	f.Add(good[:50], 40)
	f.Fuzz(func(t *testing.T, b []byte, flip int) {
		last := int64(-1)
		for _, e := range decodeIndex(b, seed, 7, 1000) {
			if e.pos <= last || e.pos >= 1000 {
				t.Fatalf("entry at %d after %d", e.pos, last)
			}
			last = e.pos
		}
		bad := append([]byte(nil), good...)
		i := (flip%len(good) + len(good)) % len(good)
		bad[i] ^= 1 << (flip & 7)
		if n := len(decodeIndex(bad, seed, 7, 1000)); n != i/indexEntryBytes {
			t.Fatalf("%d entries after a flip at %d", n, i)
		}
		if n := len(decodeIndex(good, indexSeed(part(2), 7), 7, 1000)); n != 0 {
			t.Fatalf("%d entries of another partition pass", n)
		}
	})
}

func FuzzSnapshot(f *testing.F) {
	good := encodeSnapshot(part(1), 9, []byte("state"))
	ref := snapshotRef{9, uint32(len(good)), record.Checksum(good[12:])}
	f.Add(good, 0)
	f.Add(good[:20], 45)
	f.Fuzz(func(t *testing.T, b []byte, flip int) {
		if s, err := decodeSnapshot(b, part(1), ref); err == nil && string(s) != "state" {
			t.Fatalf("a wrong state passed: %q", s)
		}
		bad := append([]byte(nil), good...)
		bad[(flip%len(good)+len(good))%len(good)] ^= 1 << (flip & 7)
		if s, err := decodeSnapshot(bad, part(1), ref); err == nil {
			t.Fatalf("a flipped snapshot passed: %q", s)
		}
	})
}

func FuzzCheckpoint(f *testing.F) {
	full := &state{
		start: 1, flushed: 9, next: 9, epoch: 2, lastMs: 5, applied: 77,
		segs: []segment{{1, 100, 1, 2}, {5, 200, 3, 5}}, epochs: []epochStart{{epoch: 1, at: record.At(1)}, {epoch: 2, at: record.Position{Offset: 6, Voids: 2}}},
		flushedVoids: 3, startMs: 1, snaps: []snapshotRef{{7, 50, 9}}, committed: 8,
	}
	_, good, _ := journal.TakeCut(encodeCheckpoint(journal.Cut{At: 1<<32 | 4096, Frame: 1},
		[]logMark{{state: appendState(nil, part(1), full)}, {}, {state: appendState(nil, part(2), &state{})}}, map[ident.Partition]fate{part(3): setAside}))
	f.Add(good)
	f.Add(good[:30])
	f.Fuzz(func(t *testing.T, b []byte) {
		logs, _, out, err := decodeCheckpoint(b)
		if err != nil {
			return
		}
		// What passes is what is written: sizes agree, and states make sense.
		var again []logMark
		for p, s := range logs {
			if s.flushedPos().Before(s.startPos()) || s.nextPos() != s.flushedPos() {
				t.Fatalf("a state of [%d,%d) to %d", s.start, s.flushed, s.next)
			}
			again = append(again, logMark{state: appendState(nil, p, s)})
		}
		if _, b2, _ := journal.TakeCut(encodeCheckpoint(journal.Cut{}, again, out)); b[3]&0xc0 == 0xc0 && len(b2) != len(b) {
			t.Fatalf("%d bytes decode to %d", len(b), len(b2))
		}
	})
}

// Entries of any content never panic, and a log only ever grows by batches that
// fit.
func FuzzEntries(f *testing.F) {
	f.Add(uint8(2), []byte(batch(part(1), 1, 0, 1, 2, 10)))
	f.Add(uint8(3), encodeTruncate(part(1), record.At(1), segmentCut{end: record.At(1), base: 0, pos: 10}))
	f.Add(uint8(4), appendSnaps(append(appendPartition(nil, part(1)), 3, 0, 0, 0, 0, 0, 0, 0), []snapshotRef{{3, 4, 5}}))
	f.Add(uint8(4), encodeStart(part(1), record.Position{Offset: 2, Voids: 1}, []snapshotRef{{3, 4, 5}}, 3))
	f.Add(uint8(5), appendPartition(nil, part(1)))
	f.Add(uint8(7), encodeRestart(part(1), record.Position{Offset: 7, Voids: 2}, snapshotRef{9, 4, 5}))
	f.Add(uint8(8), appendPartition(nil, part(2)))
	f.Fuzz(func(t *testing.T, typ uint8, payload []byte) {
		// The older format of a truncation was shorter.
		if typ == uint8(entryTruncate) && len(payload) > 60 && payload[0]&1 == 0 {
			payload = payload[:60]
		}
		r := &found{logs: map[ident.Partition]*foundLog{}, out: map[ident.Partition]fate{}}
		first := batch(part(1), 1, 0, 1, 2, 10)
		if err := r.apply(10, entryBatch, first); err != nil {
			t.Fatal(err)
		}
		if r.apply(20, journal.Type(typ), payload) != nil {
			return
		}
		for _, l := range r.logs {
			at := l.flushed
			for _, it := range l.tail {
				if it.head.Base != at {
					t.Fatalf("offset %d follows %d", it.head.Base, at)
				}
				at = it.head.Next()
			}
			if l.damage == nil && at != l.next {
				t.Fatalf("the tail ends at %d, the log at %d", at, l.next)
			}
		}
	})
}

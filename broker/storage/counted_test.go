package storage

import (
	"encoding/binary"
	"errors"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"

	"tidewire/broker/journal"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/testkit/faultfs"
)

// olderState is appendState of the format that did not count voids.
func olderState(b []byte, p ident.Partition, s *state) []byte {
	le := binary.LittleEndian
	b = appendPartition(b, p)
	b = le.AppendUint64(b, uint64(s.applied))
	b = le.AppendUint64(b, uint64(s.start))
	b = le.AppendUint64(b, uint64(s.flushed))
	b = le.AppendUint32(b, uint32(s.epoch))
	b = le.AppendUint64(b, uint64(s.lastMs))
	b = le.AppendUint32(b, uint32(len(s.segs)))
	for _, g := range s.segs {
		for _, v := range []int64{int64(g.base), g.bytes, g.firstMs, g.lastMs} {
			b = le.AppendUint64(b, uint64(v))
		}
	}
	b = le.AppendUint32(b, uint32(len(s.epochs)))
	for _, e := range s.epochs {
		b = le.AppendUint64(le.AppendUint32(b, uint32(e.epoch)), uint64(e.at.Offset))
	}
	return appendSnaps(b, s.snaps)
}

// A folder that an older program left opens, and its voids are counted as if they
// always had been.
func TestAFolderOfTheOlderFormatIsCounted(t *testing.T) {
	for _, closed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			disk := faultfs.New(0)
			s := start(t, patient(disk))
			l := s.mustLog(t, part(1), LogConfig{})
			m := plain{}
			add := func(b record.Batch) {
				t.Helper()
				m.batches = append(m.batches, b)
				if err := l.Append(b, nil, func(error) {}); err != nil {
					t.Fatal(err)
				}
				m.most = m.end()
				synctest.Wait()
			}
			add(batch(l.part, 1, 0, 1, 3, 50))
			add(voids(l.part, 1, 3, 1, 7))
			add(voids(l.part, 2, 3, 1, 8)) // the second epoch begins between two voids
			add(batch(l.part, 2, 3, 1, 2, 50))
			add(voids(l.part, 2, 5, 1, 9))
			if err := l.flush(); err != nil {
				t.Fatal(err)
			}
			// The checkpoint as the older program would have made it.
			mark, err := l.mark(s.journal.Done().At, true)
			if err != nil || s.syncDirs() != nil {
				t.Fatal(err)
			}
			l.mu.Lock()
			older := l.inSegments()
			l.mu.Unlock()
			mark.state = olderState(nil, l.part, &older)
			payload := encodeCheckpoint(s.journal.Done(), []logMark{mark}, nil)
			payload[19] &^= 0xc0
			if err := s.appendEntry(t.Context(), journal.Checkpoint, payload); err != nil {
				t.Fatal(err)
			}
			if !closed { // more of it is in the journal alone
				add(voids(l.part, 2, 5, 1, 10))
				add(voids(l.part, 3, 5, 1, 11))
				add(batch(l.part, 3, 5, 1, 1, 50))
			}
			killed := disk.KillClone()
			s.mustClose(t)
			for range 3 { // again and again, until a checkpoint has counted
				s = reopen(t, killed)
				l = s.mustLog(t, part(1), LogConfig{})
				if err := m.matches(l, seeded(1)); err != nil {
					t.Fatal(err)
				}
				killed = killed.KillClone()
				s.stop()
				<-s.done
			}
			s = reopen(t, killed)
			l = s.mustLog(t, part(1), LogConfig{})
			to := record.Position{Offset: 3, Voids: 1}
			if err := l.TruncateTo(to); err != nil {
				t.Fatal(err)
			}
			killed = killed.KillClone()
			s.mustClose(t)
			s = reopen(t, killed)
			if err := m.cut(to).matches(s.mustLog(t, part(1), LogConfig{}), seeded(2)); err != nil {
				t.Fatal(err)
			}
			s.mustClose(t)
		})
	}
}

// An older program let a segment end with voids that stand where the next begins.
func TestVoidsAtTheEndOfASegmentAreCounted(t *testing.T) {
	disk := faultfs.New(0)
	s := start(t, patient(disk))
	l := s.mustLog(t, part(1), LogConfig{})
	m := plain{batches: []record.Batch{
		batch(l.part, 1, 0, 1, 3, 50), voids(l.part, 1, 3, 1, 7), voids(l.part, 1, 3, 1, 8),
		voids(l.part, 1, 3, 1, 9), batch(l.part, 1, 3, 1, 2, 50), voids(l.part, 1, 5, 1, 10),
	}}
	m.most = m.end()
	for i, b := range m.batches {
		if i == 3 {
			l.flushMu.Lock()
			if err := errors.Join(l.roll(&item{head: b.Header()})); err != nil {
				t.Fatal(err)
			}
			l.flushMu.Unlock()
		}
		done := make(chan error, 1)
		if err := l.Append(b, nil, func(err error) { done <- err }); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(<-done, l.flush()); err != nil {
			t.Fatal(err)
		}
	}
	if len(l.segs) != 2 {
		t.Fatalf("%d segments", len(l.segs))
	}
	if err := m.matches(l, seeded(1)); err != nil {
		t.Fatal(err)
	}
	for voids := range 4 {
		at, err := l.startAt(3, false)
		if want := (record.Position{Offset: 3, Voids: 2}); err != nil || at != want {
			t.Errorf("without the first segment the log starts at %v, %v", at, err)
		}
		disk := disk.KillClone()
		s := reopen(t, disk)
		l := s.mustLog(t, part(1), LogConfig{})
		to := record.Position{Offset: 3, Voids: voids}
		if err := l.TruncateTo(to); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := m.cut(to).matches(l, seeded(2)); err != nil {
				t.Fatal(err)
			}
			s.mustClose(t)
			s = reopen(t, disk)
			l = s.mustLog(t, part(1), LogConfig{})
		}
		s.mustClose(t)
	}
	s.mustClose(t)
}

// A log that lived through more epochs than it remembers never claims to share
// what it cannot know.
func TestForgottenEpochsAreNotAgreedUpon(t *testing.T) {
	disk := faultfs.New(0)
	s := start(t, patient(disk))
	l := s.mustLog(t, part(1), LogConfig{SegmentBytes: 20_000})
	const all = maxEpochs + 100
	m := plain{}
	for e := range ident.Epoch(all) {
		b := batch(l.part, e+1, ident.Offset(e), 1, 1, 10)
		m.batches = append(m.batches, b)
		if err := l.Append(b, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	m.most = m.end()
	check := func(l *Log, from ident.Epoch) {
		t.Helper()
		for e := range ident.Epoch(all + 2) {
			last, end := l.EpochEndPosition(e)
			wantLast, wantEnd := m.epochEnd(e)
			if e < from {
				wantLast, wantEnd = 0, record.At(0)
			}
			if last != wantLast || end != wantEnd {
				t.Fatalf("epoch %d ended at %v as %d, want %v as %d", e, end, last, wantEnd, wantLast)
			}
		}
		if l.LastEpoch() != m.lastEpoch() {
			t.Errorf("the last epoch is %d, not %d", l.LastEpoch(), m.lastEpoch())
		}
	}
	check(l, 101)
	mustPut(t, l, all, 1, 1, 10) // waits for all before it
	m.batches = append(m.batches, batch(l.part, all, all, 1, 1, 10))
	// A cut to where the history does not go back to: the batches tell the epoch.
	for _, flush := range []bool{false, true} {
		killed := disk.KillClone()
		s := reopen(t, killed)
		l := s.mustLog(t, part(1), LogConfig{})
		full := m
		if flush {
			if err := l.flush(); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.TruncateTo(record.At(50)); err != nil {
			t.Fatal(err)
		}
		m = m.cut(record.At(50))
		check(l, 50)
		s.mustClose(t)
		s = reopen(t, killed)
		check(s.mustLog(t, part(1), LogConfig{}), 50)
		s.mustClose(t)
		m = full
	}
	s.mustClose(t)
}

// Truncations meet readers, the flusher and checkpoints: what is read is always
// what was written.
func TestTruncationsBesideReadsAndFlushes(t *testing.T) {
	cfg := small("/data")
	cfg.FS, cfg.FlushBytes = faultfs.New(0), 1
	s := start(t, cfg)
	l := s.mustLog(t, part(1), LogConfig{SegmentBytes: 1500})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for n := range 3 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			r := seeded(uint64(n))
			for {
				select {
				case <-stop:
					return
				default:
				}
				end := l.EndPosition()
				p := record.At(max(0, end.Offset-ident.Offset(r.IntN(30))))
				raw, err := l.ReadFrom(p, r.IntN(1000))
				if err != nil { // in the middle of a batch, or cut away
					raw, err = l.Read(min(p.Offset, l.End()), end.Offset, r.IntN(1000))
				}
				if err != nil {
					continue
				}
				for len(raw) > 0 {
					b, rest, err := record.Cut(raw)
					if err == nil {
						err = b.Verify()
					}
					if err != nil {
						t.Error(err)
						return
					}
					raw = rest
				}
			}
		}()
	}
	r := seeded(9)
	for i := range 300 {
		for range r.IntN(8) {
			e := ident.Epoch(i + 1)
			if r.IntN(3) == 0 {
				if err := l.Append(voids(l.part, e, l.End(), int64(i), int64(i)), nil, nil); err != nil {
					t.Fatal(err)
				}
				continue
			}
			mustPut(t, l, e, int64(i), 1+r.IntN(4), 60)
		}
		if i%20 == 0 {
			s.kickCheckpoint()
		}
		end := l.EndPosition()
		to := record.Position{Offset: max(0, end.Offset-ident.Offset(r.IntN(12))), Voids: r.IntN(2)}
		if err := l.TruncateTo(to); err != nil {
			t.Fatal(err)
		}
		if got := l.EndPosition(); to.Before(got) || !l.DurablePosition().Before(got) && l.DurablePosition() != got {
			t.Fatalf("cut to %v, it ends at %v and is durable to %v", to, got, l.DurablePosition())
		}
	}
	close(stop)
	wg.Wait()
	if err := l.Damage(); err != nil {
		t.Error(err)
	}
	s.mustClose(t)
}

// States that count voids and do not say what is committed are of the format between.
func TestAStateThatDoesNotSayWhatIsCommittedIsRead(t *testing.T) {
	s := &state{
		start: 3, startVoids: 1, startMs: 2, flushed: 9, flushedVoids: 2, epoch: 2, lastMs: 5, applied: 77, ahead: 4, committed: 8,
		segs: []segment{{3, 100, 1, 5}}, epochs: []epochStart{{epoch: 2, at: record.Position{Offset: 3, Voids: 1}}}, snaps: []snapshotRef{{4, 50, 9}},
	}
	s.setNext(s.flushedPos())
	const said = partitionBytes + 3*8 + 4 + 8 + 4 + 4 + 8 + 8 // where it says so now
	whole := appendState(nil, part(1), s)
	for _, committed := range []bool{true, false} {
		b, flags := whole, uint32(countedStates|committedStates)
		if !committed {
			b, flags = append(append([]byte(nil), whole[:said]...), whole[said+8:]...), countedStates
		}
		payload := binary.LittleEndian.AppendUint32(nil, 1|flags)
		payload = binary.LittleEndian.AppendUint32(append(payload, b...), 0)
		logs, counted, _, err := decodeCheckpoint(payload)
		if err != nil || !counted {
			t.Fatal(counted, err)
		}
		want := *s
		if !committed {
			want.committed = 0
		}
		if got := logs[part(1)]; !reflect.DeepEqual(*got, want) {
			t.Errorf("read as %+v, want %+v", *got, want)
		}
	}
}

package storage

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/testkit/faultfs"
)

func TestRetentionKeepsWhatItSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := small("/data")
		cfg.FS = faultfs.New(0)
		s := start(t, cfg)
		l := s.mustLog(t, part(1), LogConfig{SegmentBytes: 1000, RetentionAge: time.Hour})
		fill := func(n int) {
			for range n {
				mustPut(t, l, 1, time.Now().UnixMilli(), 2, 60)
			}
			time.Sleep(time.Second)
		}
		retain := func(hw ident.Offset) {
			t.Helper()
			if err := l.Retain(time.Now(), hw); err != nil {
				t.Fatal(err)
			}
		}
		fill(20)
		time.Sleep(30 * time.Minute)
		fill(20)
		retain(l.End())
		if l.Start() != 0 {
			t.Fatalf("nothing is an hour old, but the start is %d", l.Start())
		}
		time.Sleep(31 * time.Minute) // 20 batches are too old
		retain(10)
		if l.Start() > 10 {
			t.Fatalf("the start %d passed hw 10", l.Start())
		}
		retain(l.End())
		if l.Start() < 30 || l.Start() > 40 {
			t.Fatalf("the start is %d; half of 80 records are too old", l.Start())
		}
		_, err := l.Read(0, 80, 100)
		if f := fault.As(err); f == nil || f.Kind != fault.OffsetExpired || f.Fields["earliest"] != int64(l.Start()) || f.Fields["end"] != int64(80) {
			t.Errorf("a read below the start says %v", err)
		}
		if next, err := readAll(l, 500); err != nil || next != 80 {
			t.Errorf("records to %d, %v", next, err)
		}
		// All of it is too old: the active segment goes as well.
		time.Sleep(2 * time.Hour)
		retain(l.End())
		if l.Start() != 80 || l.End() != 80 || l.Bytes() != 0 {
			t.Errorf("the log is [%d,%d) with %d bytes", l.Start(), l.End(), l.Bytes())
		}
		fill(1)
		// By size.
		l.Configure(LogConfig{SegmentBytes: 1000, RetentionBytes: 3000})
		fill(50)
		retain(l.End())
		if b := l.Bytes(); b < 3000 || b > 4000+200 {
			t.Errorf("%d bytes are kept, 3000 were to be", b)
		}
		from := l.Start()
		s.mustClose(t)
		s = start(t, cfg)
		l = s.mustLog(t, part(1), LogConfig{})
		if next, err := readAll(l, 500); err != nil || next != 182 || l.Start() != from {
			t.Errorf("after a restart: [%d,%d), %v", l.Start(), next, err)
		}
		s.mustClose(t)
	})
}

func TestAPurgeDropsWholeSegmentsAndNothingThatStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := small("/data")
		cfg.FS = faultfs.New(0)
		s := start(t, cfg)
		l := s.mustLog(t, part(1), LogConfig{SegmentBytes: 1000})
		for range 40 {
			mustPut(t, l, 1, time.Now().UnixMilli(), 2, 60)
		}
		time.Sleep(time.Second)
		purge := func(below, hw ident.Offset) {
			t.Helper()
			was := l.Start()
			if err := l.Purge(below, hw); err != nil {
				t.Fatal(err)
			}
			if l.Start() > max(was, min(below, hw)) {
				t.Fatalf("below %d with hw %d: the log begins at %d", below, hw, l.Start())
			}
		}
		purge(1, l.End())
		purge(l.End(), 1)
		if l.Start() != 0 {
			t.Fatalf("half a segment went, up to %d", l.Start())
		}
		purge(41, l.End())
		from := l.Start()
		if from < 30 {
			t.Fatalf("of 41 records to be dropped %d were", from)
		}
		purge(7, l.End()) // nothing goes back
		s.mustClose(t)
		s = start(t, cfg)
		l = s.mustLog(t, part(1), LogConfig{SegmentBytes: 1000})
		if next, err := readAll(l, 500); err != nil || next != 80 || l.Start() != from {
			t.Fatalf("after a restart: [%d,%d), %v", l.Start(), next, err)
		}
		purge(l.End(), l.End())
		if l.Start() != 80 || l.Bytes() != 0 {
			t.Fatalf("the log is [%d,%d) with %d bytes", l.Start(), l.End(), l.Bytes())
		}
		mustPut(t, l, 1, time.Now().UnixMilli(), 2, 60)
		if next, err := readAll(l, 500); err != nil || next != 82 {
			t.Fatalf("records to %d, %v", next, err)
		}
		s.mustClose(t)
	})
}

// A producer state as of the same offset may be there already, and know nothing of the
// voids that came after it. So they stay until a record is behind them.
func TestVoidsAtTheEndDoNotGoWithAllTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := small("/data")
		cfg.FS = faultfs.New(0)
		s := start(t, cfg)
		l := s.mustLog(t, part(1), LogConfig{SegmentBytes: 1000, RetentionAge: time.Hour})
		mustPut(t, l, 1, time.Now().UnixMilli(), 3, 60)
		done := make(chan error, 1)
		if err := l.Append(voids(l.part, 1, 3, time.Now().UnixMilli(), 7), nil, func(err error) { done <- err }); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		retained := func(from ident.Offset) {
			t.Helper()
			time.Sleep(2 * time.Hour)
			if err := l.Retain(time.Now(), l.End()); err != nil {
				t.Fatal(err)
			}
			if at := l.StartPosition(); at != record.At(from) {
				t.Fatalf("the log begins at %v, not at offset %d", at, from)
			}
		}
		retained(0)
		mustPut(t, l, 1, time.Now().UnixMilli(), 1, 60)
		retained(4)
		s.mustClose(t)
	})
}

func TestAJumpOfTheClockWaitsForASecondLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := small("/data")
		cfg.FS = faultfs.New(0)
		s := start(t, cfg)
		l := s.mustLog(t, part(1), LogConfig{SegmentBytes: 500, RetentionAge: time.Hour})
		for range 20 {
			mustPut(t, l, 1, time.Now().UnixMilli(), 2, 60)
		}
		time.Sleep(time.Second)
		jumped := func() time.Time { return time.Now().Add(1000 * time.Hour) }
		if err := l.Retain(jumped(), l.End()); err != nil || l.Start() != 0 {
			t.Fatalf("after a jump the start is %d, %v", l.Start(), err)
		}
		if err := l.Retain(time.Now(), l.End()); err != nil || l.Start() != 0 {
			t.Fatalf("the clock went back, and the start is %d, %v", l.Start(), err)
		}
		if err := l.Retain(jumped(), l.End()); err != nil || l.Start() != 0 {
			t.Fatalf("after another jump the start is %d, %v", l.Start(), err)
		}
		time.Sleep(time.Minute)
		if err := l.Retain(jumped(), l.End()); err != nil || l.Start() == 0 {
			t.Errorf("the clock stays there, but the start is %d, %v", l.Start(), err)
		}
		s.mustClose(t)
	})
}

// Readers at random offsets meet retention on a real disk: right records or a
// clear refusal, never anything else.
func TestReadersBesideRetention(t *testing.T) {
	cfg := small("/data")
	cfg.FS = faultfs.New(0)
	s := start(t, cfg)
	l := s.mustLog(t, part(1), LogConfig{SegmentBytes: 1500, RetentionBytes: 6000})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			r := rand.New(rand.NewPCG(uint64(n), 3))
			for {
				select {
				case <-stop:
					return
				default:
				}
				end := l.Durable()
				from := ident.Offset(r.Int64N(int64(end) + 1))
				raw, err := l.Read(from, end, r.IntN(3000))
				if fault.Is(err, fault.OffsetExpired) {
					if l.Start() <= from {
						t.Errorf("offset %d expired, but the start is %d", from, l.Start())
					}
					continue
				}
				if err == nil {
					_, err = checkBatches(raw, l.part, from)
				}
				if err != nil || len(raw) == 0 && from < end {
					t.Errorf("offset %d of %d: %d bytes, %v", from, end, len(raw), err)
					return
				}
			}
		}()
	}
	// Only what is in segments goes, and when that is the flusher says.
	for i := 0; i < 150 || l.Start() == 0 && i < 100_000; i++ {
		mustPut(t, l, 1, int64(i), 3, 50)
		if i%10 == 0 {
			if err := l.Retain(time.Now(), l.Durable()); err != nil {
				t.Error(err)
			}
		}
	}
	close(stop)
	wg.Wait()
	if l.Start() == 0 {
		t.Error("retention never dropped anything: nothing was tested")
	}
	s.mustClose(t)
}

// What a log knew of its producers outlives the records it knew it from.
func TestProducerStateOutlivesItsRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := faultfs.New(0)
		cfg := small("/data")
		cfg.FS, cfg.CheckpointBytes = disk, 1<<40 // no checkpoint but the last
		s := start(t, cfg)
		l := s.mustLog(t, part(1), LogConfig{SegmentBytes: 500, RetentionBytes: 1000})
		l.SetSnapshotter(func() (ident.Offset, []byte) {
			return l.End(), binary.LittleEndian.AppendUint64(nil, uint64(l.End()))
		})
		for i := range 40 {
			mustPut(t, l, 1, int64(i), 2, 60)
		}
		time.Sleep(time.Second)
		if err := l.Retain(time.Now(), l.End()); err != nil || l.Start() == 0 {
			t.Fatalf("start %d, %v", l.Start(), err)
		}
		from := l.Start()
		killed := disk.KillClone()
		s.mustClose(t)
		for name, d := range map[string]*faultfs.Memory{"killed": killed, "closed": disk} {
			cfg.FS = d
			s := start(t, cfg)
			l := s.mustLog(t, part(1), LogConfig{})
			at, state := l.Recovered()
			if l.Start() != from || at != 80 || len(state) != 8 || binary.LittleEndian.Uint64(state) != 80 {
				t.Errorf("%s: start %d, state %x at %d", name, l.Start(), state, at)
			}
			s.mustClose(t)
		}
	})
}

func TestLookupsEqualALinearScan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(12) {
			r := rand.New(rand.NewPCG(seed, 4))
			cfg := small("/data")
			cfg.FS, cfg.IndexBytes, cfg.IndexCacheBytes = faultfs.New(0), 1+r.Int64N(600), 1+r.Int64N(2000)
			s := start(t, cfg)
			l := s.mustLog(t, part(1), LogConfig{SegmentBytes: 300 + r.Int64N(2000)})
			type row struct {
				ms    int64
				epoch ident.Epoch
			}
			var rows []row // by offset
			ms, epoch := int64(10), ident.Epoch(1)
			sequence := int64(0)
			for range 120 {
				ms += r.Int64N(3)
				if r.IntN(12) == 0 {
					epoch += ident.Epoch(1 + r.IntN(2))
				}
				if r.IntN(8) == 0 {
					if err := l.Append(voids(l.part, epoch, l.End(), ms, sequence), nil, nil); err != nil {
						t.Fatal(err)
					}
					sequence++
					continue
				}
				n := 1 + r.IntN(4)
				mustPut(t, l, epoch, ms, n, 1+r.IntN(80))
				for range n {
					rows = append(rows, row{ms, epoch})
				}
				if r.IntN(10) == 0 {
					time.Sleep(time.Second)
				}
			}
			check := func(l *Log) {
				t.Helper()
				for q := int64(8); q < ms+3; q++ {
					want := l.End()
					for o, row := range rows {
						if row.ms >= q {
							want = ident.Offset(o)
							break
						}
					}
					if got, err := l.OffsetAt(q); err != nil || got != want {
						t.Fatalf("seed %d: time %d is at offset %d (%v), a scan says %d", seed, q, got, err, want)
					}
				}
				for e := ident.Epoch(1); e <= epoch+1; e++ {
					var wantEpoch ident.Epoch
					want := l.End()
					for o, row := range rows {
						if row.epoch > e {
							want = ident.Offset(o)
							break
						}
						wantEpoch = row.epoch
					}
					if got, end := l.EpochEnd(e); end != want && end != l.End() || got < wantEpoch {
						t.Fatalf("seed %d: epoch %d ends at %d as %d, a scan says %d as %d", seed, e, end, got, want, wantEpoch)
					}
				}
				for range 50 {
					from := ident.Offset(r.IntN(len(rows) + 1))
					raw, err := l.Read(from, l.End(), r.IntN(1500))
					if err != nil {
						t.Fatal(err)
					}
					if next, err := checkBatches(raw, l.part, from); err != nil || next == from && from < l.End() {
						t.Fatalf("seed %d: read at %d gets to %d, %v", seed, from, next, err)
					}
					got, seen := int64(0), map[int64]bool{}
					if err := l.Fold(from, func(b record.Batch) error {
						h := b.Header()
						if h.Base < from && h.Next() <= from {
							t.Errorf("seed %d: fold from %d visits [%d,%d)", seed, from, h.Base, h.Next())
						}
						got += int64(h.Next() - max(from, h.Base))
						if h.Span == 0 {
							it := b.Entries()
							it.Next()
							seen[it.Entry().Sequence] = true
						}
						return nil
					}); err != nil || got != int64(l.End()-from) {
						t.Fatalf("seed %d: fold from %d visits %d records of %d, %v", seed, from, got, l.End()-from, err)
					}
					if from == 0 && len(seen) != int(sequence) {
						t.Fatalf("seed %d: a fold of everything visits %d voids of %d", seed, len(seen), sequence)
					}
				}
			}
			check(l)
			s.mustClose(t)
			s = start(t, cfg)
			check(s.mustLog(t, part(1), LogConfig{}))
			s.mustClose(t)
		}
	})
}

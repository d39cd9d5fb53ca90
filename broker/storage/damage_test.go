package storage

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/testkit/faultfs"
	"tidewire/internal/vfs"
)

// replaceFile puts other contents into a file, durably.
func replaceFile(t testing.TB, fsys vfs.FS, name string, data []byte) {
	t.Helper()
	if err := vfs.WriteAtomic(fsys, name, data); err != nil {
		t.Fatal(err)
	}
}

func readFile(t testing.TB, fsys vfs.FS, name string) []byte {
	t.Helper()
	b, err := vfs.ReadFile(fsys, name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func names(t testing.TB, fsys vfs.FS, dir, suffix string) (found []string) {
	t.Helper()
	infos, err := fsys.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range infos {
		if strings.HasSuffix(i.Name, suffix) {
			found = append(found, filepath.Join(dir, i.Name))
		}
	}
	return found
}

// threeBatches makes a disk on which three batches were acknowledged one after
// the other, covered by a mark; clean says whether the store was closed.
func threeBatches(t testing.TB, clean bool) (disk *faultfs.Memory, cfg Config, acked ident.Offset) {
	t.Helper()
	disk = faultfs.New(0)
	cfg = small("/data")
	cfg.FS, cfg.JournalFileBytes, cfg.FlushAge, cfg.FlushBytes = disk, 12<<10, time.Hour, 1<<20
	s := start(t, cfg)
	l := s.mustLog(t, part(1), LogConfig{})
	for i := range 3 {
		mustPut(t, l, 1, int64(i), 2, 60)
	}
	acked = l.End()
	time.Sleep(time.Second) // virtual: the idle mark
	synctest.Wait()
	if clean {
		s.mustClose(t)
		return disk, cfg, acked
	}
	killed := disk.KillClone()
	s.mustClose(t)
	return killed, cfg, acked
}

// outcome opens a damaged disk and judges what is there: a right prefix, and a
// clear word if it is not all of it.
func outcome(t testing.TB, disk *faultfs.Memory, cfg Config, acked ident.Offset) (end ident.Offset, reported bool, err error) {
	t.Helper()
	cfg.FS = disk
	st, err := Open(cfg)
	if err != nil {
		return 0, false, fmt.Errorf("start: %w", err)
	}
	s := run(st)
	defer func() {
		if e := s.close(); err == nil && e != nil {
			err = fmt.Errorf("close: %w", e)
		}
	}()
	l := s.mustLog(t, part(1), LogConfig{})
	next, readErr := readAll(l, 100)
	if readErr != nil && !fault.Is(readErr, fault.LeaderUnavailable) {
		return next, false, fmt.Errorf("a wrong answer: %w", readErr)
	}
	reported = s.ReadOnly() != nil || l.Damage() != nil
	if reported {
		if _, err := l.Read(acked, acked+1, 10); next < acked && !fault.Is(err, fault.LeaderUnavailable) {
			return next, reported, fmt.Errorf("a read past the damage: %v", err)
		}
		if err := l.Admit(10); !fault.Is(err, fault.LeaderUnavailable) {
			return next, reported, fmt.Errorf("an append to a damaged log is admitted: %v", err)
		}
		if err := put(l, 2, 1<<30, 1, 10); err == nil {
			return next, reported, fmt.Errorf("a damaged log took an append")
		}
	} else if err := put(l, 2, 1<<30, 1, 10); err != nil {
		return next, reported, fmt.Errorf("append: %w", err)
	}
	return next, reported, nil
}

// newestJournal is the file that holds the batches: the last one with frames.
func newestJournal(t testing.TB, disk vfs.FS) (name string, data []byte, used int) {
	t.Helper()
	for _, n := range names(t, disk, "/data/journal", ".journal") {
		b := readFile(t, disk, n)
		if u := len(strings.TrimRight(string(b), "\x00")); u > 4096 {
			name, data, used = n, b, u
		}
	}
	return name, data, used
}

func TestEveryFlippedByteOfTheJournalIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, cfg, acked := threeBatches(t, false)
		name, data, used := newestJournal(t, disk)
		for i := range used {
			if i > 64 && i < 4096 {
				continue // between head and first frame nothing is read
			}
			c := disk.KillClone()
			bad := append([]byte(nil), data...)
			bad[i] ^= 1 << (i % 8)
			replaceFile(t, c, name, bad)
			end, reported, err := outcome(t, c, cfg, acked)
			if err != nil || end < acked && !reported {
				t.Fatalf("byte %d of %s flipped: records to %d of %d, reported %v, %v", i, name, end, acked, reported, err)
			}
		}
	})
}

func TestJournalCutAnywhereIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, cfg, acked := threeBatches(t, false)
		name, data, used := newestJournal(t, disk)
		for i := 0; i < used; i++ {
			if i > 64 && i < 4090 {
				continue
			}
			c := disk.KillClone()
			replaceFile(t, c, name, data[:i])
			end, reported, err := outcome(t, c, cfg, acked)
			if err != nil || end < acked && !reported {
				t.Fatalf("%s cut at byte %d: records to %d of %d, reported %v, %v", name, i, end, acked, reported, err)
			}
		}
	})
}

func TestEveryFlippedOrCutByteOfASegmentIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, cfg, acked := threeBatches(t, true)
		segs := names(t, disk, partitionDir("/data", part(1)), segmentSuffix)
		if len(segs) != 1 {
			t.Fatalf("segments: %v", segs)
		}
		data := readFile(t, disk, segs[0])
		for i := range data {
			c := disk.KillClone()
			bad := append([]byte(nil), data...)
			bad[i] ^= 1 << (i % 8)
			replaceFile(t, c, segs[0], bad)
			end, reported, err := outcome(t, c, cfg, acked)
			if err != nil || end >= acked || !reported {
				t.Fatalf("byte %d flipped: records to %d of %d, reported %v, %v", i, end, acked, reported, err)
			}
			c = disk.KillClone()
			replaceFile(t, c, segs[0], data[:i])
			end, reported, err = outcome(t, c, cfg, acked)
			if err != nil || end >= acked || !reported {
				t.Fatalf("cut at byte %d: records to %d of %d, reported %v, %v", i, end, acked, reported, err)
			}
		}
	})
}

// After a clean stop the journal's end is a checkpoint. If that is lost, the
// segments still prove what was acknowledged.
func TestSegmentsProveWhatALostCheckpointKnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, cfg, acked := threeBatches(t, true)
		name, data, used := newestJournal(t, disk)
		for i := 4096; i < used; i++ {
			c := disk.KillClone()
			bad := append([]byte(nil), data...)
			bad[i] ^= 0x10
			replaceFile(t, c, name, bad)
			end, _, err := outcome(t, c, cfg, acked)
			if err != nil || end < acked {
				t.Fatalf("byte %d flipped: records to %d of %d, %v", i, end, acked, err)
			}
		}
	})
}

func TestAMissingJournalIsNeverAnEmptyOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, cfg, acked := threeBatches(t, true)
		for _, n := range names(t, disk, "/data/journal", ".journal") {
			if err := disk.Remove(n); err != nil {
				t.Fatal(err)
			}
		}
		end, reported, err := outcome(t, disk, cfg, acked)
		if err != nil || !reported || end != acked {
			t.Errorf("records to %d of %d, reported %v, %v", end, acked, reported, err)
		}
	})
}

// What the journal lost although it was flushed is found in the segment.
func TestAcknowledgedBatchesAreSalvagedFromSegments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := faultfs.New(0)
		cfg := small("/data")
		cfg.FS, cfg.FlushBytes, cfg.IdleMark = disk, 1, time.Hour
		s := start(t, cfg)
		l := s.mustLog(t, part(1), LogConfig{SegmentBytes: 400})
		for i := range 6 {
			mustPut(t, l, 1, int64(i), 2, 60)
		}
		time.Sleep(100 * time.Millisecond) // virtual: flushed
		synctest.Wait()
		killed := disk.KillClone()
		s.mustClose(t)
		// The last frame has no mark yet: its loss looks like a torn end.
		name, data, used := newestJournal(t, killed)
		data[used-5] ^= 1
		replaceFile(t, killed, name, data)
		for range 2 { // the second start finds it in the journal again
			end, reported, err := outcome(t, killed, cfg, 12)
			if err != nil || reported || end < 12 {
				t.Fatalf("records to %d of 12, reported %v, %v", end, reported, err)
			}
		}
	})
}

func TestUnknownFoldersAreSetAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, cfg, acked := threeBatches(t, true)
		from, to := partitionDir("/data", part(1)), partitionDir("/data", part(9))
		if err := vfs.MkdirAll(disk, to); err != nil {
			t.Fatal(err)
		}
		seg := names(t, disk, from, segmentSuffix)[0]
		replaceFile(t, disk, filepath.Join(to, filepath.Base(seg)), readFile(t, disk, seg))
		end, reported, err := outcome(t, disk, cfg, acked)
		if err != nil || reported || end != acked {
			t.Fatalf("records to %d, reported %v, %v", end, reported, err)
		}
		if _, err := disk.Stat(to); err == nil {
			t.Error("the unknown folder is still in place")
		}
		if got := len(names(t, disk, "/data/quarantine", "")); got != 1 {
			t.Errorf("%d entries in quarantine", got)
		}
	})
}

// Every cache of the log may be gone, short or garbage: the node starts and the
// log is what it was.
func TestCachesAreRebuilt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := faultfs.New(0)
		cfg := small("/data")
		cfg.FS = disk
		s := start(t, cfg)
		l := s.mustLog(t, part(1), LogConfig{SegmentBytes: 1000})
		l.SetSnapshotter(func() (ident.Offset, []byte) { return l.End(), []byte(fmt.Sprint(l.End())) })
		for i := range 60 {
			mustPut(t, l, 1+ident.Epoch(i/20), int64(i), 2, 60)
		}
		acked := l.End()
		s.mustClose(t)
		dir := partitionDir("/data", part(1))
		caches := append(names(t, disk, dir, indexSuffix), names(t, disk, dir, snapshotSuffix)...)
		if len(caches) < 10 {
			t.Fatalf("too few caches to test with: %v", caches)
		}
		spoils := map[string]func(b []byte) []byte{
			"gone":    func([]byte) []byte { return nil },
			"short":   func(b []byte) []byte { return b[:len(b)/2] },
			"empty":   func([]byte) []byte { return []byte{} },
			"garbage": func(b []byte) []byte { return []byte(strings.Repeat("x~", len(b))) },
			"flipped": func(b []byte) []byte { b = append([]byte(nil), b...); b[len(b)/3] ^= 4; return b },
			"swapped": func([]byte) []byte { return readFile(t, disk, caches[1]) },
		}
		for name, spoil := range spoils {
			c := disk.KillClone()
			for _, n := range caches {
				if b := spoil(readFile(t, disk, n)); b != nil {
					replaceFile(t, c, n, b)
				} else if err := c.Remove(n); err != nil {
					t.Fatal(err)
				}
			}
			cfg := cfg
			cfg.FS = c
			s := start(t, cfg)
			l := s.mustLog(t, part(1), LogConfig{})
			if next, err := readAll(l, 200); err != nil || next != acked || l.Damage() != nil {
				t.Errorf("%s: records to %d of %d, %v, %v", name, next, acked, err, l.Damage())
			}
			if at, state := l.Recovered(); state != nil || at != 0 {
				if name != "swapped" || string(state) != fmt.Sprint(at) {
					t.Errorf("%s: a spoilt snapshot was taken: %d %q", name, at, state)
				}
			}
			for ms := range int64(60) {
				if o, err := l.OffsetAt(ms); err != nil || o != ident.Offset(2*ms) {
					t.Errorf("%s: time %d is at offset %d, %v", name, ms, o, err)
				}
			}
			s.mustClose(t)
		}
	})
}

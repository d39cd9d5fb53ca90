package storage

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/testkit/faultfs"
	"tidewire/internal/vfs"
)

// spoil flips a byte of a file, durably.
func spoil(t testing.TB, fsys vfs.FS, name string, pos int) {
	t.Helper()
	b := readFile(t, fsys, name)
	b[pos] ^= 4
	f, err := fsys.OpenWrite(name)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(b, 0)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// A damaged log is set aside and begun anew, while the process dies before any
// operation of the disk: afterwards there is the old one or the new one, and the
// files are somewhere.
func TestAReplacedLogIsTheOldOneOrAFreshOne(t *testing.T) {
	olds, news := 0, 0
	for fuse := int64(1); ; fuse++ {
		over := false
		synctest.Test(t, func(t *testing.T) {
			disk := faultfs.New(0)
			fsys := faultfs.Wrap(disk)
			s := start(t, patient(fsys))
			l := s.mustLog(t, part(1), LogConfig{})
			for range 3 {
				mustPut(t, l, 1, 1, 2, 60)
			}
			if err := s.checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
			spoil(t, disk, l.path(0, segmentSuffix), 300)
			if _, err := l.Read(2, 6, 1000); l.Damage() == nil {
				t.Fatalf("no damage: %v", err)
			}
			var n atomic.Int64
			var killed, cut *faultfs.Memory
			fsys.SetHook(func(faultfs.Op, string) {
				if n.Add(1) == fuse {
					killed, cut = disk.KillClone(), disk.CrashClone(seeded(uint64(fuse)))
				}
			})
			if err := s.Replace(part(1)); err != nil {
				t.Fatal(err)
			}
			if err := put(l, 1, 1, 1, 10); !fault.Is(err, fault.PartitionNotFound) {
				t.Errorf("the old one takes: %v", err)
			}
			again := s.mustLog(t, part(1), LogConfig{})
			if again.End() != 0 || again.Damage() != nil {
				t.Errorf("the new one ends at %d: %v", again.End(), again.Damage())
			}
			mustPut(t, again, 7, 1, 3, 60) // the leader gives it what it has
			replaced := n.Load()
			if err := errors.Join(again.flush(), s.checkpoint(t.Context())); err != nil {
				t.Fatal(err)
			}
			end := disk.KillClone()
			s.mustClose(t) // from here on nothing of it calls the disk
			over = killed == nil
			for _, d := range []*faultfs.Memory{killed, cut, end} {
				if d == nil {
					continue
				}
				s := reopen(t, d)
				l := s.mustLog(t, part(1), LogConfig{})
				aside, _ := d.ReadDir(quarantineDir("/data"))
				switch {
				case l.End() == 6 && l.LastEpoch() == 1:
					olds++
					if fuse > replaced || d == end {
						t.Errorf("the old log came back at operation %d", fuse)
					}
				case l.End() == 0 || l.End() == 3 && l.LastEpoch() == 7:
					news++
					if len(aside) != 1 || l.Damage() != nil {
						t.Errorf("set aside: %v; damage of the new one: %v", aside, l.Damage())
					}
					if d == end && l.End() != 3 {
						t.Errorf("the new one lost what was acknowledged: it ends at %d", l.End())
					}
				default:
					t.Errorf("operation %d: the log ends at %d, epoch %d", fuse, l.End(), l.LastEpoch())
				}
				s.mustClose(t)
			}
		})
		if over || t.Failed() {
			break
		}
	}
	if olds == 0 || news == 0 {
		t.Errorf("%d old ones and %d new ones: nothing was tested", olds, news)
	}
}

// A partition that leaves a node and comes back is another log: what was kept of it
// since is not buried with the first one.
func TestAPartitionThatComesBackLives(t *testing.T) {
	for _, again := range []bool{false, true} {
		disk := faultfs.New(0)
		s := start(t, patient(disk))
		mustPut(t, s.mustLog(t, part(1), LogConfig{}), 1, 1, 3, 50)
		if err := s.Delete(part(1)); err != nil {
			t.Fatal(err)
		}
		if again {
			mustPut(t, s.mustLog(t, part(1), LogConfig{}), 5, 1, 2, 50)
		}
		killed := disk.KillClone()
		s.mustClose(t)
		s = reopen(t, killed)
		l := s.mustLog(t, part(1), LogConfig{})
		want := ident.Offset(0)
		if again {
			want = 2
		}
		if next, err := readAll(l, 100); err != nil || next != want {
			t.Errorf("records to %d of %d: %v", next, want, err)
		}
		s.mustClose(t)
	}
}

func TestAReadOnlyFolderReplacesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, cfg, _ := threeBatches(t, false)
		name, _, used := newestJournal(t, disk)
		spoil(t, disk, name, used-200)
		cfg.FS = disk
		s := start(t, cfg)
		if s.ReadOnly() == nil {
			t.Fatal("the journal is not corrupt")
		}
		if err := s.Replace(part(1)); !fault.Is(err, fault.LeaderUnavailable) {
			t.Errorf("replace: %v", err)
		}
		if got := s.Damaged(); !slices.Equal(got, []ident.Partition{part(1)}) {
			t.Errorf("damaged: %v", got)
		}
		select {
		case <-s.DamageNews():
		default:
			t.Error("the start's damage is no news")
		}
		s.mustClose(t)
	})
}

// A bit that rots in a sealed segment is found without anybody reading it.
func TestTheScrubFindsRot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := faultfs.New(0)
		cfg := patient(disk)
		cfg.ScrubBytes = 1000
		s := start(t, cfg)
		for n := range 2 {
			l := s.mustLog(t, part(n), LogConfig{SegmentBytes: 600})
			for range 20 {
				mustPut(t, l, 1, 1, 2, 60)
			}
		}
		l := s.mustLog(t, part(1), LogConfig{SegmentBytes: 600})
		if err := s.checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.ScrubNow(t.Context()); err != nil || len(s.Damaged()) > 0 {
			t.Fatalf("a sound folder: %v, %v", err, s.Damaged())
		}
		l.mu.Lock()
		rotten, bytes := l.segs[2], l.state.bytes()
		l.mu.Unlock()
		spoil(t, disk, l.path(rotten.base, segmentSuffix), int(rotten.bytes)-20)
		began := time.Now()
		<-s.DamageNews()
		if took := time.Since(began); took < scrubAfter || took > scrubAfter+time.Duration(2*bytes/1000+2)*time.Second {
			t.Errorf("it took %s at 1000 bytes a second", took)
		}
		if got := s.Damaged(); !slices.Equal(got, []ident.Partition{part(1)}) {
			t.Errorf("damaged: %v", got)
		}
		d := l.damage.Offset
		if d < rotten.base || d >= l.End() {
			t.Errorf("damaged from %d on, the rotten segment begins at %d", d, rotten.base)
		}
		if raw, err := l.Read(d-1, l.End(), 10); err != nil || len(raw) == 0 {
			t.Errorf("what lies before it: %v", err)
		}
		if _, err := l.Read(d, l.End(), 10); !fault.Is(err, fault.LeaderUnavailable) {
			t.Errorf("what lies behind: %v", err)
		}
		s.mustClose(t)
	})
}

func TestProducersForAFollower(t *testing.T) {
	disk := faultfs.New(0)
	s := start(t, patient(disk))
	l := s.mustLog(t, part(1), LogConfig{})
	l.SetSnapshotter(func() (ident.Offset, []byte) {
		return l.End(), binary.LittleEndian.AppendUint64(nil, uint64(l.End()))
	})
	if _, _, ok := l.ProducersUpTo(100); ok {
		t.Error("a state from nowhere")
	}
	for range 3 {
		mustPut(t, l, 1, 1, 5, 50)
		if err := s.checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for hw, want := range map[ident.Offset]ident.Offset{9: 0, 10: 10, 14: 10, 15: 15, 99: 15} {
		at, state, ok := l.ProducersUpTo(hw)
		if ok != (want > 0) || at != want || ok && binary.LittleEndian.Uint64(state) != uint64(want) {
			t.Errorf("up to %d: %x of %d, %v; want that of %d", hw, state, at, ok, want)
		}
	}
	if err := l.Restart(record.At(4), nil, 3); err == nil {
		t.Error("a log begins behind its producer state")
	}
	if err := l.SetStart(16, 16); err == nil {
		t.Error("the start passed the end")
	}
	if err := l.Restart(record.At(40), nil, 45); err != nil || l.Start() != 40 || l.End() != 40 {
		t.Errorf("begun anew: %d to %d, %v", l.Start(), l.End(), err)
	}
	if at, state := l.Recovered(); at != 45 || state == nil || len(state) > 0 {
		t.Errorf("no producer at 45 is %x at %d", state, at)
	}
	visited := 0
	if err := l.Fold(45, func(record.Batch) error { visited++; return nil }); err != nil || visited > 0 {
		t.Errorf("a fold ahead of the end visits %d: %v", visited, err)
	}
	s.mustClose(t)
}

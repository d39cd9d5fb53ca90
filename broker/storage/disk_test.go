package storage

import (
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/testkit/faultfs"
)

// No acknowledgement comes after a failed write or sync, wherever it strikes;
// Run ends with the error, and the next start has all that was acknowledged.
func TestDiskErrorsEndAcknowledgements(t *testing.T) {
	strikes := map[string]faultfs.Rule{
		"journal sync":           {Op: faultfs.OpSync, Match: "*.journal", Skip: 12, Err: syscall.EIO, Lost: true, Times: 1},
		"journal sync, no space": {Op: faultfs.OpSync, Match: "*.journal", Skip: 9, Err: syscall.ENOSPC, Lost: true, Times: 1},
		"journal write":          {Op: faultfs.OpWrite, Match: "*.journal", Skip: 9, Err: syscall.EIO, Short: true, Times: 1},
		"next file":              {Op: faultfs.OpSync, Match: "spare.tmp", Skip: 2, Err: syscall.EIO, Times: 1},
		"segment write":          {Op: faultfs.OpWrite, Match: "*.log", Skip: 3, Err: syscall.EIO, Times: 1},
		"segment sync":           {Op: faultfs.OpSync, Match: "*.log", Err: syscall.EIO, Lost: true, Times: 1},
		"segment sync, no space": {Op: faultfs.OpSync, Match: "*.log", Err: syscall.ENOSPC, Lost: true, Times: 1},
		"folder sync":            {Op: faultfs.OpSyncDir, Match: "1", Err: syscall.EIO, Times: 1},
	}
	for name, rule := range strikes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := faultfs.New(0)
				faulty := faultfs.Wrap(disk)
				cfg := small("/data")
				cfg.FS, cfg.CheckpointBytes = faulty, 4<<10
				s := start(t, cfg)
				l := s.mustLog(t, part(1), LogConfig{})
				faulty.Strike(rule)
				acked, failed := l.End(), false
				for i := range 400 {
					err := put(l, 1, int64(i), 1, 100)
					if err == nil && failed {
						t.Fatalf("offset %d was acknowledged after the disk failed", i)
					}
					if err != nil && !fault.Is(err, fault.UnknownOutcome) && !fault.Is(err, fault.LeaderUnavailable) {
						t.Fatalf("the error is %v", err)
					}
					if failed = failed || err != nil; !failed {
						acked = l.End()
					}
					if i%5 == 0 {
						time.Sleep(30 * time.Millisecond) // virtual: flushes and checkpoints happen
					}
				}
				if !failed {
					t.Fatal("the fault never struck")
				}
				if err := <-s.done; !errors.Is(err, rule.Err) {
					t.Fatalf("Run ended with %v", err)
				}
				faulty.Heal()
				killed := disk.KillClone()
				end, reported, err := outcome(t, killed, cfg, acked)
				if err != nil || reported || end < acked {
					t.Errorf("after the restart: records to %d of %d, reported %v, %v", end, acked, reported, err)
				}
			})
		})
	}
}

func TestAFullDiskRefusesAndHeals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := faultfs.New(200 << 10)
		cfg := small("/data")
		cfg.FS, cfg.MinFreeBytes, cfg.CheckpointBytes = disk, 40<<10, 20<<10
		s := start(t, cfg)
		l := s.mustLog(t, part(1), LogConfig{SegmentBytes: 8 << 10})
		refused := 0
		for i := 0; refused < 3; i++ {
			if i > 10000 {
				t.Fatal("the disk never got full")
			}
			if err := l.Admit(300); err != nil {
				if !fault.Is(err, fault.DiskFull) {
					t.Fatal(err)
				}
				refused++
				time.Sleep(time.Second) // virtual
				continue
			}
			mustPut(t, l, 1, int64(i), 1, 200)
			time.Sleep(10 * time.Millisecond)
		}
		acked := l.End()
		if next, err := readAll(l, 1000); err != nil || next != acked {
			t.Fatalf("reads on a full disk: to %d of %d, %v", next, acked, err)
		}
		disk.SetCapacity(400 << 10)
		time.Sleep(time.Second)
		if err := l.Admit(300); err != nil {
			t.Fatalf("space came back, and still %v", err)
		}
		mustPut(t, l, 1, 1<<20, 1, 200)
		s.mustClose(t)
		end, reported, err := outcome(t, disk, cfg, acked+1)
		if err != nil || reported || end != acked+1 {
			t.Errorf("after the restart: records to %d of %d, reported %v, %v", end, acked+1, reported, err)
		}
	})
}

// It is known before a record is refused, of whatever size.
func TestADiskIsFullBeforeItRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := faultfs.New(64 << 20)
		cfg := small("/data")
		cfg.FS, cfg.MinFreeBytes = disk, 1<<20
		s := start(t, cfg)
		defer s.mustClose(t)
		l := s.mustLog(t, part(1), LogConfig{})
		for capacity, want := range map[int64]bool{10 << 20: true, 16 << 20: true, 64 << 20: false} {
			disk.SetCapacity(capacity)
			time.Sleep(time.Second)
			if err := l.Admit(300); err != nil || s.Full() != want {
				t.Errorf("%d MiB: full %v, %v", capacity>>20, s.Full(), err)
			}
		}
		disk.SetCapacity(1 << 19)
		time.Sleep(time.Second)
		if err := l.Admit(300); !fault.Is(err, fault.DiskFull) || !s.Full() {
			t.Errorf("full %v, %v", s.Full(), err)
		}
		disk.SetCapacity(64 << 20)
		time.Sleep(time.Second)
	})
}

// What is written between two questions for the free space counts: a disk that
// takes everything in no time still keeps what has to stay free.
func TestAFastDiskKeepsItsFreeSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const capacity, least = 400 << 10, 40 << 10
		disk := faultfs.New(capacity)
		cfg := small("/data")
		cfg.FS, cfg.MinFreeBytes, cfg.CheckpointBytes, cfg.IndexBytes = disk, least, 20<<10, 64<<10
		s := start(t, cfg)
		l := s.mustLog(t, part(1), LogConfig{SegmentBytes: 64 << 10})
		began := time.Now()
		for i := int64(0); ; i++ {
			err := l.Admit(300)
			if fault.Is(err, fault.DiskFull) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			mustPut(t, l, 1, i, 1, 200)
			synctest.Wait() // for the segments, which takes no time either
		}
		if took := time.Since(began); took >= freeEvery {
			t.Fatalf("it took %s: the file system was asked again meanwhile", took)
		}
		if free, _ := disk.Free(cfg.Dir); free < least-2<<10 {
			t.Errorf("%d bytes are free where %d have to stay", free, least)
		}
		s.mustClose(t)
	})
}

// keptOn holds that a node that starts on any of the disks has everything that
// was acknowledged, and nothing to report.
func keptOn(t *testing.T, disks map[string]*faultfs.Memory, cfg Config, acked ident.Offset) {
	t.Helper()
	for which, d := range disks {
		end, reported, err := outcome(t, d, cfg, acked)
		if err != nil || reported || end < acked {
			t.Errorf("%s: records to %d of %d, reported %v, %v", which, end, acked, reported, err)
		}
	}
}

// ENOSPC below the guard: whatever lacks space waits, nothing is lost, and all
// goes on when space is back.
func TestLackOfSpaceAnywhereIsWaitedFor(t *testing.T) {
	for name, rule := range map[string]faultfs.Rule{
		"segments":                    {Op: faultfs.OpWrite, Match: "*.log", Err: syscall.ENOSPC, Short: true},
		"new segments":                {Op: faultfs.OpCreate, Match: "*.log", Err: syscall.ENOSPC},
		"journal files":               {Op: faultfs.OpWrite, Match: "spare.tmp", Err: syscall.ENOSPC, Short: true},
		"journal files at their sync": {Op: faultfs.OpSync, Match: "spare.tmp", Err: syscall.ENOSPC},
		"snapshots":                   {Op: faultfs.OpWrite, Match: "*.producers", Err: syscall.ENOSPC},
		"indexes":                     {Op: faultfs.OpWrite, Match: "*.index", Err: syscall.ENOSPC},
		"folders":                     {Op: faultfs.OpMkdir, Err: syscall.ENOSPC},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := faultfs.New(0)
				faulty := faultfs.Wrap(disk)
				cfg := small("/data")
				cfg.FS, cfg.CheckpointBytes = faulty, 8<<10
				s := start(t, cfg)
				faulty.Strike(rule)
				l := s.mustLog(t, part(1), LogConfig{SegmentBytes: 4 << 10})
				refused := 0
				for i := range 300 {
					if err := l.Admit(300); err != nil {
						if !fault.Is(err, fault.DiskFull) {
							t.Fatal(err)
						}
						refused++
						time.Sleep(20 * time.Millisecond)
						continue
					}
					mustPut(t, l, 1, int64(i), 1, 150)
					time.Sleep(5 * time.Millisecond)
				}
				if name == "journal files" && refused == 0 {
					t.Error("nothing was refused although no journal file could be made")
				}
				acked := l.End()
				if next, err := readAll(l, 1000); err != nil || next != acked {
					t.Fatalf("reads without space: to %d of %d, %v", next, acked, err)
				}
				killed := disk.KillClone()
				faulty.Heal()
				time.Sleep(time.Second)
				if err := l.Admit(300); err != nil {
					t.Fatalf("space came back, and still %v", err)
				}
				mustPut(t, l, 1, 1<<20, 1, 200)
				s.mustClose(t)
				keptOn(t, map[string]*faultfs.Memory{"killed": killed, "closed": disk}, cfg, acked)
			})
		})
	}
}

// A start without a byte free serves what is there, and changes none of it.
func TestAStartWithoutSpaceServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, cfg, acked := threeBatches(t, false)
		disk.SetCapacity(1)
		cfg.FS = disk
		s := start(t, cfg)
		l := s.mustLog(t, part(1), LogConfig{})
		time.Sleep(time.Minute)
		if next, err := readAll(l, 100); err != nil || next != acked {
			t.Fatalf("records to %d of %d, %v", next, acked, err)
		}
		if err := l.Admit(10); !fault.Is(err, fault.DiskFull) {
			t.Errorf("an append is admitted: %v", err)
		}
		disk.SetCapacity(0)
		time.Sleep(time.Minute)
		if err := l.Admit(10); err != nil {
			t.Errorf("space came back, and still %v", err)
		}
		mustPut(t, l, 1, 100, 1, 10)
		s.mustClose(t)
	})
}

func TestReadErrorsEndTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, cfg, _ := threeBatches(t, true)
		faulty := faultfs.Wrap(disk)
		cfg.FS = faulty
		s := start(t, cfg)
		l := s.mustLog(t, part(1), LogConfig{})
		faulty.Strike(faultfs.Rule{Op: faultfs.OpRead, Match: "*.log", Err: syscall.EIO})
		if _, err := l.Read(0, 10, 100); !fault.Is(err, fault.LeaderUnavailable) {
			t.Errorf("the read says %v", err)
		}
		if err := <-s.done; !errors.Is(err, syscall.EIO) {
			t.Errorf("Run ended with %v", err)
		}
		if err := put(l, 1, 100, 1, 10); err == nil {
			t.Error("an append was acknowledged after the disk failed")
		}
	})
}

// A bit that flips on its way from the disk never reaches a reader.
func TestFlippedReadsAreNeverServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, cfg, acked := threeBatches(t, true)
		faulty := faultfs.Wrap(disk)
		cfg.FS = faulty
		s := start(t, cfg)
		l := s.mustLog(t, part(1), LogConfig{})
		faulty.Strike(faultfs.Rule{Op: faultfs.OpRead, Match: "*.log", Flip: true})
		if raw, err := l.Read(0, acked, 1000); !fault.Is(err, fault.LeaderUnavailable) || len(raw) > 0 {
			t.Errorf("%d bytes, %v", len(raw), err)
		}
		s.mustClose(t)
	})
}

func TestTwoProcessesCannotShareAFolder(t *testing.T) {
	cfg := small(t.TempDir())
	s := start(t, cfg)
	if other, err := Open(cfg); err == nil {
		t.Error("a second store opened the folder", other)
	}
	s.mustClose(t)
	start(t, cfg).mustClose(t)
}

// Somebody cuts a segment under a running node: who reads it is told, and does
// not look for the rest for ever.
func TestASegmentThatIsCutUnderAReaderIsDamage(t *testing.T) {
	disk := faultfs.New(0)
	s := start(t, patient(disk))
	l := s.mustLog(t, part(1), LogConfig{})
	for range 3 {
		mustPut(t, l, 1, 1, 2, 60)
	}
	if err := s.checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	f, err := disk.OpenWrite(l.path(0, segmentSuffix))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(l.Bytes()-10), f.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Read(4, 6, 1000); !fault.Is(err, fault.LeaderUnavailable) || l.Damage() == nil {
		t.Errorf("read: %v, damage: %v", err, l.Damage())
	}
	s.mustClose(t)
}

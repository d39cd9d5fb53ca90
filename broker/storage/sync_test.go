package storage

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/internal/ident"
	"tidewire/internal/testkit/faultfs"
)

// holds says whether each of so many partitions has its three records.
func holds(t *testing.T, s *running, parts int) {
	t.Helper()
	for n := range parts {
		if next, err := readAll(s.mustLog(t, part(n), LogConfig{}), 1000); err != nil || next != 3 {
			t.Fatalf("partition %d: records to %d, %v", n, next, err)
		}
	}
}

// With many changed logs a checkpoint costs one sync, and keeps as much.
func TestManyChangedLogsAreSyncedAtOnce(t *testing.T) {
	disk := faultfs.New(0)
	fsys := faultfs.Wrap(disk)
	s := start(t, patient(fsys))
	const parts = 200
	for n := range parts {
		l := s.mustLog(t, part(n), LogConfig{})
		l.SetSnapshotter(func() (ident.Offset, []byte) { return l.End(), []byte("state") })
		mustPut(t, l, 1, 1, 3, 50)
	}
	syncs, dirs := fsys.Count(faultfs.OpSync), fsys.Count(faultfs.OpSyncDir)
	if err := s.checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	syncs, dirs = fsys.Count(faultfs.OpSync)-syncs, fsys.Count(faultfs.OpSyncDir)-dirs
	if all := fsys.Count(faultfs.OpSyncAll); all != 1 || syncs > 10 || dirs > 10 {
		t.Errorf("%d syncs of all, %d of files, %d of folders", all, syncs, dirs)
	}
	for seed := range uint64(5) {
		s := reopen(t, disk.CrashClone(seeded(seed)))
		for n := range parts {
			l := s.mustLog(t, part(n), LogConfig{})
			if at, state := l.Recovered(); at != 3 || string(state) != "state" {
				t.Errorf("partition %d: the snapshot at %d holds %q", n, at, state)
			}
			if s.logs[part(n)].durableTail > 0 {
				t.Errorf("partition %d: the checkpoint did not keep what is in its segment", n)
			}
		}
		holds(t, s, parts)
		s.mustClose(t)
	}
	// And the next one has nothing to do.
	if err := s.checkpoint(t.Context()); err != nil || fsys.Count(faultfs.OpSyncAll) != 1 {
		t.Errorf("%v, %d syncs of all", err, fsys.Count(faultfs.OpSyncAll))
	}
	s.mustClose(t)
}

// A checkpoint that is given up before its sync leaves nothing behind that the
// next one takes for durable.
func TestACheckpointThatIsGivenUpOwesItsSyncs(t *testing.T) {
	for _, next := range []int{-1, 100} { // syncs all at once, syncs one by one
		disk := faultfs.New(0)
		cfg := patient(disk)
		cfg.syncsAtOnce = -1
		s := start(t, cfg)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		const parts = 3
		for n := range parts {
			l := s.mustLog(t, part(n), LogConfig{})
			l.SetSnapshotter(func() (ident.Offset, []byte) { cancel(); return l.End(), []byte("state") })
			mustPut(t, l, 1, 1, 3, 50)
		}
		if err := s.checkpoint(ctx); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		s.cfg.syncsAtOnce = next
		if err := s.checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(20) {
			s := reopen(t, disk.CrashClone(seeded(seed)))
			holds(t, s, parts)
			for n := range parts {
				if at, state := s.mustLog(t, part(n), LogConfig{}).Recovered(); at != 3 || string(state) != "state" {
					t.Errorf("the snapshot at %d holds %q", at, state)
				}
			}
			s.mustClose(t)
		}
		s.mustClose(t)
	}
}

// A sync of everything is as final as one of a file, a lack of space included.
func TestAFailedSyncOfAllEndsTheStore(t *testing.T) {
	for _, cause := range []error{syscall.EIO, syscall.ENOSPC} {
		fsys := faultfs.Wrap(faultfs.New(0))
		cfg := patient(fsys)
		cfg.syncsAtOnce = -1
		s := start(t, cfg)
		l := s.mustLog(t, part(1), LogConfig{})
		mustPut(t, l, 1, 1, 3, 50)
		fsys.Strike(faultfs.Rule{Op: faultfs.OpSyncAll, Err: cause})
		s.kickCheckpoint()
		if err := <-s.done; !errors.Is(err, cause) {
			t.Errorf("the store ended with %v", err)
		}
		if err := put(l, 1, 1, 1, 10); err == nil {
			t.Error("a batch was acknowledged after it")
		}
		s.stop()
	}
}

// A slow disk delays the end by what LastCheckpoint allows, and nothing is lost.
func TestTheEndDoesNotWaitForItsCheckpointForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := faultfs.New(0)
		fsys := faultfs.Wrap(disk)
		cfg := patient(fsys)
		cfg.LastCheckpoint, cfg.syncsAtOnce = 5*time.Second, 1000
		s := start(t, cfg)
		const parts = 100
		for n := range parts {
			mustPut(t, s.mustLog(t, part(n), LogConfig{}), 1, 1, 3, 50)
		}
		fsys.Strike(faultfs.Rule{Op: faultfs.OpSync, Match: "*.log", Delay: 2 * time.Second})
		began := time.Now()
		s.mustClose(t)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the end took %s", took)
		}
		s = reopen(t, disk.CrashClone(seeded(1)))
		holds(t, s, parts)
		s.mustClose(t)
	})
}

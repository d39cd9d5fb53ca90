package storage

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/testkit/faultfs"
)

// logBuffer may be written to and read at the same time.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *logBuffer) lines(part string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range strings.Lines(b.b.String()) {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

// Without open files whatever opens one waits: nothing acknowledged is lost,
// no read is wrong, the disk is not said to have failed, and all goes on when
// files can be opened again.
func TestLackOfOpenFilesIsWaitedFor(t *testing.T) {
	for name, rules := range map[string][]faultfs.Rule{
		"everything":         {{Op: faultfs.OpOpen}, {Op: faultfs.OpCreate}, {Op: faultfs.OpSyncDir}},
		"segments":           {{Op: faultfs.OpOpen, Match: "*.log"}},
		"new segments":       {{Op: faultfs.OpCreate, Match: "*.log"}},
		"journal files":      {{Op: faultfs.OpCreate, Match: "spare.tmp"}},
		"used journal files": {{Op: faultfs.OpOpen, Match: "spare.tmp"}},
		"journal folder":     {{Op: faultfs.OpSyncDir, Match: "journal"}},
		"folders":            {{Op: faultfs.OpSyncDir}},
		"snapshots":          {{Op: faultfs.OpCreate, Match: "*.producers"}},
		"snapshot syncs":     {{Op: faultfs.OpOpen, Match: "*.producers"}},
		"indexes":            {{Op: faultfs.OpCreate, Match: "*.index"}, {Op: faultfs.OpOpen, Match: "*.index"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out logBuffer
				disk := faultfs.New(0)
				faulty := faultfs.Wrap(disk)
				cfg := small("/data")
				cfg.FS, cfg.CheckpointBytes, cfg.OpenFiles, cfg.UnflushedBytes = faulty, 8<<10, 2, 16<<10
				cfg.Logger = slog.New(slog.NewTextHandler(&out, nil))
				s := start(t, cfg)
				l := s.mustLog(t, part(1), LogConfig{SegmentBytes: 4 << 10})
				l.SetSnapshotter(func() (at ident.Offset, state []byte) { return l.End(), []byte("state") })
				other := s.mustLog(t, part(2), LogConfig{SegmentBytes: 4 << 10})
				for i := range 60 {
					mustPut(t, l, 1, int64(i), 1, 150)
					mustPut(t, other, 1, int64(i), 1, 150)
					time.Sleep(5 * time.Millisecond)
				}
				for i, r := range rules {
					r.Err = syscall.EMFILE
					if i == 1 {
						r.Err = syscall.ENFILE
					}
					faulty.Strike(r)
				}
				if err := s.Delete(part(2)); err != nil {
					t.Errorf("delete: %v", err)
				}
				refused := 0
				for i := range 400 {
					if _, err := readAll(l, 1000); err != nil && !passingFault(err) {
						t.Fatalf("read: %v", err)
					}
					if _, err := l.OffsetAt(int64(i)); err != nil && !passingFault(err) {
						t.Fatalf("look up: %v", err)
					}
					if err := l.Retain(time.Now(), l.Durable()); err != nil {
						t.Fatalf("retain: %v", err)
					}
					if err := l.Admit(300); err != nil {
						if !fault.Is(err, fault.Throttled) {
							t.Fatal(err)
						}
						refused++
						time.Sleep(20 * time.Millisecond)
						continue
					}
					mustPut(t, l, 1, int64(100+i), 1, 150)
					time.Sleep(5 * time.Millisecond)
				}
				if name == "everything" && refused == 0 {
					t.Error("nothing was refused although nothing could be opened")
				}
				if n := out.lines("level=WARN"); n > 12 || out.lines("level=ERROR") > 0 {
					t.Errorf("%d warnings: %s", n, out.b.String())
				}
				acked := l.End()
				killed := disk.KillClone()
				faulty.Heal()
				time.Sleep(time.Second)
				if next, err := readAll(l, 1000); err != nil || next != acked {
					t.Fatalf("records to %d of %d, %v", next, acked, err)
				}
				if err := l.Admit(300); err != nil {
					t.Fatalf("files can be opened again, and still %v", err)
				}
				mustPut(t, l, 1, 1<<20, 1, 200)
				s.mustClose(t)
				disks := map[string]*faultfs.Memory{"killed": killed, "closed": disk}
				keptOn(t, disks, cfg, acked)
				for which, d := range disks {
					if _, err := d.Stat(partitionDir("/data", part(2))); err == nil {
						t.Errorf("%s: the folder of the deleted partition is there", which)
					}
				}
			})
		})
	}
}

func passingFault(err error) bool {
	var f *fault.Error
	return errors.As(err, &f) && f.Kind == fault.LeaderUnavailable && !f.Lasting
}

// What only a partition's own files know at the start is waited for, not gone
// without.
func TestAStartWaitsForOpenFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, cfg, acked := threeBatches(t, true)
		faulty := faultfs.Wrap(disk)
		cfg.FS = faulty
		s := start(t, cfg)
		l := s.mustLog(t, part(1), LogConfig{})
		faulty.Strike(faultfs.Rule{Op: faultfs.OpOpen, Err: syscall.ENFILE, Times: 7})
		var next ident.Offset
		if err := l.Fold(0, func(b record.Batch) error { next = b.Header().Next(); return nil }); err != nil || next != acked {
			t.Errorf("folded to %d of %d, %v", next, acked, err)
		}
		s.mustClose(t)
	})
}

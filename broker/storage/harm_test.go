package storage

import (
	"bytes"
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/testkit/faultfs"
	"tidewire/internal/vfs"
)

// harms is what somebody may do to the folder of a partition, or to those above it.
var harms = map[string]struct {
	do       func(t *testing.T, data, dir string)
	harmless bool // everything is there all the same
	all      bool // it harms the other partitions as well
}{
	"the folder is removed":         {do: func(t *testing.T, _, dir string) { must(t, os.RemoveAll(dir)) }},
	"the topic's folder is removed": {do: func(t *testing.T, _, dir string) { must(t, os.RemoveAll(filepath.Dir(dir))) }},
	"all topics are removed":        {all: true, do: func(t *testing.T, data, _ string) { must(t, os.RemoveAll(topicsDir(data))) }},
	"the segments are removed":      {do: func(t *testing.T, _, dir string) { each(t, dir, segmentSuffix, os.Remove) }},
	"the segments are folders":      {do: func(t *testing.T, _, dir string) { each(t, dir, segmentSuffix, folderInstead) }},
	"the segments are full folders": {do: func(t *testing.T, _, dir string) { each(t, dir, segmentSuffix, fullFolderInstead) }},
	"the folder is a file": {do: func(t *testing.T, _, dir string) {
		must(t, os.RemoveAll(dir))
		must(t, os.WriteFile(dir, []byte("x"), 0o600))
	}},
	"the topic's folder is a file": {do: func(t *testing.T, _, dir string) {
		dir = filepath.Dir(dir)
		must(t, os.RemoveAll(dir))
		must(t, os.WriteFile(dir, nil, 0o600))
	}},
	"the folder leads to itself": {do: func(t *testing.T, _, dir string) { must(t, os.RemoveAll(dir)); must(t, os.Symlink(dir, dir)) }},
	"the indexes are folders":    {harmless: true, do: func(t *testing.T, _, dir string) { each(t, dir, indexSuffix, fullFolderInstead) }},
	"the producers are folders":  {harmless: true, do: func(t *testing.T, _, dir string) { each(t, dir, snapshotSuffix, fullFolderInstead) }},
	"the producers are removed":  {harmless: true, do: func(t *testing.T, _, dir string) { each(t, dir, snapshotSuffix, os.Remove) }},
	"a folder has the next file name": {do: func(t *testing.T, _, dir string) {
		must(t, fullFolderInstead(filepath.Join(dir, offsetName(1<<20, segmentSuffix))))
	}, harmless: true},
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func each(t *testing.T, dir, suffix string, do func(string) error) {
	t.Helper()
	found := names(t, vfs.OS{}, dir, suffix)
	if len(found) == 0 {
		t.Fatalf("no file ends in %s", suffix)
	}
	for _, name := range found {
		must(t, do(name))
	}
}

func folderInstead(name string) error {
	if err := os.RemoveAll(name); err != nil {
		return err
	}
	return os.Mkdir(name, 0o700)
}

func fullFolderInstead(name string) error {
	if err := folderInstead(name); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(name, "x"), nil, 0o600)
}

// harmed makes a data folder with two partitions, each with segments and with
// records in the journal alone.
func harmed(t *testing.T) (cfg Config, at ident.Offset) {
	cfg = small(t.TempDir())
	cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	for _, tail := range []bool{false, true} {
		if tail {
			cfg.FlushAge, cfg.FlushBytes = time.Hour, 1<<20
		}
		s := start(t, cfg)
		for _, p := range []ident.Partition{part(1), part(2)} {
			l := s.mustLog(t, p, LogConfig{SegmentBytes: 4 << 10})
			l.SetSnapshotter(func() (ident.Offset, []byte) { return l.End(), []byte("state") })
			for range 6 {
				mustPut(t, l, 1, int64(l.End()), 5, 300)
			}
			at = l.End()
		}
		if tail {
			killed, err := os.MkdirTemp(t.TempDir(), "killed")
			must(t, err)
			for os.CopyFS(killed, os.DirFS(cfg.Dir)) != nil { // a journal file may get its name meanwhile
				must(t, os.RemoveAll(killed))
			}
			s.mustClose(t)
			cfg.Dir = killed
		} else {
			s.mustClose(t)
		}
	}
	fresh := small(cfg.Dir)
	fresh.Logger = cfg.Logger
	return fresh, at
}

// judge holds what is served after a harm against what has to be: everything, or
// a clear word, and the other partition as if nothing was.
func judge(t *testing.T, s *running, at ident.Offset, harmless, all, running bool) {
	t.Helper()
	for _, p := range []ident.Partition{part(1), part(2)} {
		l := s.mustLog(t, p, LogConfig{SegmentBytes: 4 << 10})
		next, err := readAll(l, 1000)
		whole := harmless || p == part(2) && !all
		switch {
		case whole && (err != nil || next < at):
			t.Errorf("%s is not harmed, and gives records to %d of %d, %v", p, next, at, err)
		case whole:
			must(t, l.Admit(100))
			mustPut(t, l, 2, 1<<30, 1, 300)
		case err == nil && next < at:
			t.Errorf("%s lost records in silence: %d of %d", p, next, at)
		case err == nil && running: // nothing was flushed to it yet, and it is open
		default:
			if err != nil && !fault.Is(err, fault.LeaderUnavailable) {
				t.Errorf("%s: %v", p, err)
			}
			if err := l.Admit(100); !fault.Is(err, fault.LeaderUnavailable) || strings.Contains(err.Error(), s.cfg.Dir) {
				t.Errorf("%s takes records: %v", p, err)
			}
		}
	}
}

func TestAHarmedFolderIsOnePartitionsDamageAtTheStart(t *testing.T) {
	for name, harm := range harms {
		t.Run(name, func(t *testing.T) {
			cfg, at := harmed(t)
			harm.do(t, cfg.Dir, partitionDir(cfg.Dir, part(1)))
			for range 3 {
				s := start(t, cfg)
				judge(t, s, at, harm.harmless, harm.all, false)
				must(t, s.checkpoint(context.Background()))
				judge(t, s, at, harm.harmless, harm.all, false)
				s.mustClose(t)
			}
			if _, err := Verify(vfs.OS{}, cfg.Dir, func(Finding) {}); err != nil {
				t.Errorf("verify: %v", err)
			}
		})
	}
}

func TestAHarmedFolderIsOnePartitionsDamageUnderARunningNode(t *testing.T) {
	for name, harm := range harms {
		t.Run(name, func(t *testing.T) {
			cfg, at := harmed(t)
			s := start(t, cfg)
			for _, p := range []ident.Partition{part(1), part(2)} {
				l := s.mustLog(t, p, LogConfig{SegmentBytes: 4 << 10})
				l.SetSnapshotter(func() (ident.Offset, []byte) { return l.End(), []byte("state") })
				if _, err := readAll(l, 1000); err != nil {
					t.Fatal(err)
				}
				mustPut(t, l, 2, 1<<29, 1, 300)
			}
			must(t, s.checkpoint(context.Background()))
			harm.do(t, cfg.Dir, partitionDir(cfg.Dir, part(1)))
			for range 3 {
				judge(t, s, at, harm.harmless, harm.all, true)
				for _, p := range []ident.Partition{part(1), part(2)} {
					if l := s.mustLog(t, p, LogConfig{SegmentBytes: 4 << 10}); l.Admit(100) == nil {
						mustPut(t, l, 2, 1<<30, 1, 300)
					}
				}
				must(t, s.checkpoint(context.Background()))
				for _, p := range []ident.Partition{part(1), part(2)} {
					must(t, s.mustLog(t, p, LogConfig{SegmentBytes: 4 << 10}).Retain(time.Now(), at))
				}
			}
			s.mustClose(t)
			s = start(t, cfg)
			judge(t, s, at, harm.harmless, harm.all, false)
			if err := s.Delete(part(1)); err != nil {
				t.Errorf("a harmed partition cannot be deleted: %v", err)
			}
			s.mustClose(t)
		})
	}
}

// What was acknowledged and cannot go to its place goes to quarantine.
func TestRecordsWithoutAPlaceAreSetAside(t *testing.T) {
	cfg, at := harmed(t)
	dir := partitionDir(cfg.Dir, part(1))
	each(t, dir, segmentSuffix, fullFolderInstead)
	s := start(t, cfg)
	s.mustClose(t)
	var all []byte
	for _, name := range names(t, vfs.OS{}, quarantineDir(cfg.Dir), segmentSuffix) {
		all = append(all, readFile(t, vfs.OS{}, name)...)
	}
	if want := value(part(1), at-1, 300); !bytes.Contains(all, want) {
		t.Errorf("the last record is not among %d bytes", len(all))
	}
}

// A permission that was taken away harms one partition; the disk is not to blame.
func TestAForbiddenPartitionIsOnePartitionsDamage(t *testing.T) {
	for name, rule := range map[string]faultfs.Rule{
		"segments":         {Op: faultfs.OpOpen, Match: "*.log"},
		"new segments":     {Op: faultfs.OpCreate, Match: "*.log"},
		"folders":          {Op: faultfs.OpMkdir},
		"folder syncs":     {Op: faultfs.OpSyncDir, Match: "1"},
		"producers":        {Op: faultfs.OpCreate, Match: "*.producers"},
		"producers' syncs": {Op: faultfs.OpOpen, Match: "*.producers"},
		"indexes":          {Op: faultfs.OpCreate, Match: "*.index"},
		"removals":         {Op: faultfs.OpRemove, Match: "*.log"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := faultfs.New(0)
				faulty := faultfs.Wrap(disk)
				cfg := small("/data")
				cfg.FS, cfg.CheckpointBytes = faulty, 8<<10
				s := start(t, cfg)
				l := s.mustLog(t, part(1), LogConfig{SegmentBytes: 4 << 10, RetentionBytes: 8 << 10})
				l.SetSnapshotter(func() (ident.Offset, []byte) { return l.End(), []byte("state") })
				if name != "folders" {
					for i := range 40 {
						mustPut(t, l, 1, int64(i), 1, 300)
						time.Sleep(5 * time.Millisecond)
					}
				} else {
					must(t, disk.Mkdir("/data/quarantine")) // else it is forbidden too
				}
				rule.Err = fs.ErrPermission
				if rule.Op == faultfs.OpOpen {
					rule.Err = syscall.EACCES
				}
				faulty.Strike(rule)
				for i := range 60 {
					if l.Admit(300) == nil {
						mustPut(t, l, 1, int64(100+i), 1, 300)
					}
					if err := l.Retain(time.Now(), l.Durable()); err != nil {
						t.Fatal(err)
					}
					time.Sleep(5 * time.Millisecond)
				}
				acked := l.End()
				must(t, s.checkpoint(context.Background()))
				other := s.mustLog(t, part(3), LogConfig{})
				mustPut(t, other, 1, 1, 1, 100)
				s.mustClose(t)
				faulty.Heal()
				end, reported, err := outcome(t, disk, cfg, acked)
				if err != nil || !reported && end < acked {
					t.Errorf("after a restart: records to %d of %d, reported %v, %v", end, acked, reported, err)
				}
			})
		})
	}
}

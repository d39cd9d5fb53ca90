package storage

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/testkit/faultfs"
	"tidewire/internal/vfs"
)

// patient is a configuration in which nothing happens by itself.
func patient(fsys vfs.FS) Config {
	return Config{Dir: "/data", FS: fsys, JournalFileBytes: 256 << 10, FlushAge: time.Hour, IdleMark: time.Hour, MinFreeBytes: 1}
}

// reopen starts on the disk as the sudden death of the process leaves it.
func reopen(t *testing.T, disk *faultfs.Memory) *running {
	t.Helper()
	return start(t, patient(disk))
}

// A checkpoint took a log's state, and only then the log was deleted: what it
// keeps must not tell of a log whose folder goes.
func TestALogDeletedUnderACheckpointStaysDead(t *testing.T) {
	disk := faultfs.New(0)
	fsys := faultfs.Wrap(disk)
	s := start(t, patient(fsys))
	dying, other := s.mustLog(t, part(1), LogConfig{}), s.mustLog(t, part(2), LogConfig{})
	mustPut(t, dying, 1, 1, 3, 50)
	if err := s.checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustPut(t, other, 1, 1, 3, 50) // a new folder for the next checkpoint to sync, after all marks are made

	removing, goOn, deleted := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var once sync.Once
	fsys.SetHook(func(op faultfs.Op, name string) {
		switch {
		case op == faultfs.OpSyncDir && name == topicsDir("/data"):
			once.Do(func() {
				go func() { deleted <- s.Delete(part(1)) }()
				<-removing
			})
		case op == faultfs.OpRemove && name == dying.dir: // its segment is gone already
			close(removing)
			<-goOn
		}
	})
	if err := s.checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	killed := disk.KillClone()
	close(goOn)
	if err := <-deleted; err != nil {
		t.Fatal(err)
	}
	s.mustClose(t)

	s = reopen(t, killed)
	if found := s.Found(); len(found) != 1 || found[0] != part(2) {
		t.Errorf("found: %v", found)
	}
	if _, err := killed.Stat(dying.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its folder: %v", err)
	}
	s.mustClose(t)
}

// A truncation that only concerns memory comes between a checkpoint's cut and
// the mark of the log: its entry must not be applied to the mark again.
func TestATruncationUnderACheckpointIsNotPlayedTwice(t *testing.T) {
	disk := faultfs.New(0)
	s := start(t, patient(disk))
	l := s.mustLog(t, part(1), LogConfig{})
	mustPut(t, l, 1, 1, 3, 50)
	if err := s.checkpoint(t.Context()); err != nil { // offsets 0 to 2 are in the segment
		t.Fatal(err)
	}
	for range 3 {
		mustPut(t, l, 1, 1, 3, 50)
	}
	var once sync.Once
	l.SetSnapshotter(func() (ident.Offset, []byte) { // called between the cut and the mark
		once.Do(func() {
			if err := l.TruncateTo(record.At(9)); err != nil {
				t.Error(err)
			}
		})
		return l.End(), nil
	})
	if err := s.checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	killed := disk.KillClone()
	s.mustClose(t)

	s = reopen(t, killed)
	l = s.mustLog(t, part(1), LogConfig{})
	if next, err := readAll(l, 1000); err != nil || next != 9 || l.Start() != 0 {
		t.Errorf("the log is [%d,%d), %v; 9 records were acknowledged and kept", l.Start(), next, err)
	}
	s.mustClose(t)
}

// Batches of voids lie at the offset of a cut, and a checkpoint knows them: the
// entry of the truncation takes them away as the truncation itself did.
func TestATruncationTakesTheVoidsAtItsOffset(t *testing.T) {
	for _, to := range []ident.Offset{0, 3} { // a whole segment, and a part of one
		disk := faultfs.New(0)
		s := start(t, patient(disk))
		l := s.mustLog(t, part(1), LogConfig{})
		if to > 0 {
			mustPut(t, l, 1, 1, int(to), 50)
		}
		done := make(chan error, 1)
		if err := l.Append(voids(l.part, 1, to, 1, 7), nil, func(err error) { done <- err }); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(<-done, s.checkpoint(t.Context())); err != nil {
			t.Fatal(err)
		}
		mustPut(t, l, 1, 1, 2, 50)
		if err := errors.Join(l.flush(), l.TruncateTo(record.At(to))); err != nil {
			t.Fatal(err)
		}
		cut := disk.KillClone()
		mustPut(t, l, 1, 1, 4, 80)
		if err := l.flush(); err != nil {
			t.Fatal(err)
		}
		written := disk.KillClone()
		s.mustClose(t)
		for disk, end := range map[*faultfs.Memory]ident.Offset{cut: to, written: to + 4} {
			s := reopen(t, disk)
			l := s.mustLog(t, part(1), LogConfig{})
			if next, err := readAll(l, 1000); err != nil || next != end || l.Damage() != nil {
				t.Errorf("cut at %d: records to %d of %d, %v, %v", to, next, end, err, l.Damage())
			}
			s.mustClose(t)
		}
	}
}

// The last partition of a topic is deleted while another one makes its first
// folder there.
func TestATopicsFolderVanishesUnderANewPartition(t *testing.T) {
	disk := faultfs.New(0)
	fsys := faultfs.Wrap(disk)
	s := start(t, patient(fsys))
	second := part(1)
	second.Index++
	mustPut(t, s.mustLog(t, part(1), LogConfig{}), 1, 1, 3, 50)
	if err := s.checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	l := s.mustLog(t, second, LogConfig{})
	mustPut(t, l, 1, 1, 3, 50)
	var once sync.Once
	fsys.SetHook(func(op faultfs.Op, name string) {
		if op == faultfs.OpMkdir && name == l.dir {
			once.Do(func() {
				if err := s.Delete(part(1)); err != nil {
					t.Error(err)
				}
			})
		}
	})
	if err := s.checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	killed := disk.KillClone()
	s.mustClose(t)
	s = reopen(t, killed)
	if found := s.Found(); len(found) != 1 || found[0] != second {
		t.Errorf("found: %v", found)
	}
	if next, err := readAll(s.mustLog(t, second, LogConfig{}), 1000); err != nil || next != 3 {
		t.Errorf("records to %d, %v", next, err)
	}
	s.mustClose(t)
}

// Two partitions of a topic are deleted at once: the one that finds the topic's
// folder gone may only call itself done once that is durable.
func TestTwoLastPartitionsOfATopicGoAtOnce(t *testing.T) {
	disk := faultfs.New(0)
	fsys := faultfs.Wrap(disk)
	s := start(t, patient(fsys))
	second := part(1)
	second.Index++
	for _, p := range []ident.Partition{part(1), second} {
		mustPut(t, s.mustLog(t, p, LogConfig{}), 1, 1, 3, 50)
	}
	if err := s.checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	var once, again atomic.Bool
	topics := topicsDir("/data")
	wait, end := make(chan struct{}), make(chan struct{})
	deleted := make(chan error, 1)
	fsys.SetHook(func(op faultfs.Op, name string) {
		switch {
		case op == faultfs.OpSyncDir && name == filepath.Dir(partitionDir("/data", second)) && once.CompareAndSwap(false, true):
			go func() { deleted <- s.Delete(second) }()
			<-wait // it has removed the topic's folder, too
		case op == faultfs.OpSyncDir && name == topics && again.CompareAndSwap(false, true):
			close(wait)
			<-end // and gets no further
		}
	})
	if err := s.Delete(part(1)); err != nil {
		t.Fatal(err)
	}
	if err := s.checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(20) {
		s := reopen(t, disk.CrashClone(seeded(seed)))
		for _, p := range s.Found() {
			t.Errorf("seed %d: %s came back from the dead", seed, p)
		}
		if infos, err := s.cfg.FS.ReadDir(quarantineDir("/data")); err == nil {
			t.Errorf("seed %d: set aside: %v", seed, infos)
		}
		s.mustClose(t)
	}
	close(end)
	if err := <-deleted; err != nil {
		t.Error(err)
	}
	s.mustClose(t)
}

// creating makes a file right after it was not found.
type creating struct {
	vfs.FS
	missed func()
}

func (c *creating) OpenWrite(name string) (vfs.File, error) {
	f, err := c.FS.OpenWrite(name)
	if errors.Is(err, fs.ErrNotExist) {
		c.missed()
	}
	return f, err
}

// A segment was not there when a reader of a former one of its name looked, and
// is there when its writer asks: the writer must not be told the reader's news.
func TestTheFileCacheTellsNobodyElsesError(t *testing.T) {
	disk := faultfs.New(0)
	c := newFileCache(nil, 10, func(err error) { t.Error(err) }, nil)
	second := make(chan error, 1)
	c.fsys = &creating{disk, func() {
		if f, err := disk.Create("/seg"); err != nil || f.Close() != nil {
			t.Error(err)
		}
		go func() {
			f, err := c.acquire("/seg")
			if err == nil {
				c.release(f)
			}
			second <- err
		}()
		for waits := false; !waits; runtime.Gosched() {
			c.mu.Lock()
			waits = c.byName["/seg"].refs == 2
			c.mu.Unlock()
		}
	}}
	if _, err := c.acquire("/seg"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the first: %v", err)
	}
	if err := <-second; err != nil {
		t.Errorf("the second: %v", err)
	}
}

// Somebody removes the active segment under a running node: that is said, and
// no mark covers it up.
func TestARemovedActiveSegmentIsNotMadeAnewInSilence(t *testing.T) {
	disk := faultfs.New(0)
	cfg := patient(disk)
	cfg.OpenFiles = 1
	s := start(t, cfg)
	l := s.mustLog(t, part(1), LogConfig{})
	mustPut(t, l, 1, 1, 3, 50)
	if err := s.checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustPut(t, l, 1, 1, 3, 50)
	s.files.forget(l.path(0, segmentSuffix))
	if err := disk.Remove(l.path(0, segmentSuffix)); err != nil {
		t.Fatal(err)
	}
	if err := s.checkpoint(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := l.Damage(); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("damage: %v", err)
	}
	s.mustClose(t)
}

package storage

import (
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"

	"tidewire/internal/ident"
	"tidewire/internal/testkit/faultfs"
)

// lostJournal is a disk whose journal is corrupt, and what is proven of its one log.
func lostJournal(t *testing.T) (disk *faultfs.Memory, id ident.StorageID, proven ident.Offset) {
	t.Helper()
	disk = faultfs.New(0)
	s := start(t, patient(disk))
	id = s.ID()
	if err := s.PutMeta("who", "me"); err != nil {
		t.Fatal(err)
	}
	l := s.mustLog(t, part(1), LogConfig{})
	for range 3 {
		mustPut(t, l, 1, 1, 2, 60)
	}
	if err := s.checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	proven = l.End()
	for range 3 {
		mustPut(t, l, 1, 1, 2, 60)
	}
	s.mustClose(t)
	name, _, used := newestJournal(t, disk)
	spoil(t, disk, name, used-200)
	return disk, id, proven
}

// untouched says that a folder is the one that was lost, with all that is proven.
func untouched(t *testing.T, s *Store, id ident.StorageID, proven ident.Offset) {
	t.Helper()
	if s.ReadOnly() == nil || s.ID() != id || s.Renewed() {
		t.Errorf("it is folder %s, read only: %v", s.ID(), s.ReadOnly())
	}
	l, err := s.Log(part(1), LogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if end, err := readAll(l, 1000); end < proven || l.Damage() == nil {
		t.Errorf("offset %d of %d, damage %v: %v", end, proven, l.Damage(), err)
	}
	if who, _ := s.GetMeta("who"); who != "me" {
		t.Errorf("it is of %q", who)
	}
}

// oldOrNext opens what is left on a disk: the old folder, or the next one, and then the old
// one is kept aside, whole.
func oldOrNext(t *testing.T, disk *faultfs.Memory, id ident.StorageID, proven ident.Offset) (renewed bool) {
	t.Helper()
	s, err := Open(patient(disk))
	if err != nil {
		t.Fatal(err)
	}
	if s.ReadOnly() != nil {
		untouched(t, s, id, proven)
		if err := s.close(nil); err != nil {
			t.Fatal(err)
		}
		return false
	}
	if s.ID() == id || len(s.Found()) > 0 || len(s.Damaged()) > 0 {
		t.Errorf("folder %s, once %s, holds %v, damaged %v", s.ID(), id, s.Found(), s.Damaged())
	}
	if who, _ := s.GetMeta("who"); who != "me" {
		t.Errorf("it is of %q", who)
	}
	r := run(s)
	l := r.mustLog(t, part(1), LogConfig{})
	mustPut(t, l, 7, 1, 3, 60) // the leader gives it what it has
	r.mustClose(t)
	again, err := Open(patient(disk))
	if err != nil {
		t.Fatal(err)
	}
	if l, err := again.Log(part(1), LogConfig{}); err != nil || l.End() != 3 || again.ReadOnly() != nil || again.Renewed() {
		t.Errorf("the next start: %v, %v", err, again.ReadOnly())
	}
	if err := again.close(nil); err != nil {
		t.Fatal(err)
	}
	aside, err := disk.ReadDir(quarantineDir("/data"))
	if err != nil || len(aside) != 1 {
		t.Fatalf("set aside: %v, %v", aside, err)
	}
	cfg := patient(disk)
	cfg.Dir = filepath.Join(quarantineDir("/data"), aside[0].Name)
	old, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	untouched(t, old, id, proven)
	if err := old.close(nil); err != nil {
		t.Fatal(err)
	}
	return true
}

// A folder is begun anew while the process dies, or the power goes, before any operation
// of the disk, and again while the next start finishes it: there is always the old
// folder, or the next one with the old one whole beside it.
func TestARenewedFolderIsTheOldOneOrTheNext(t *testing.T) {
	olds, news, resumed := 0, 0, 0
	for fuse := int64(1); ; fuse++ {
		over := false
		synctest.Test(t, func(t *testing.T) {
			disk, id, proven := lostJournal(t)
			var left []*faultfs.Memory
			open := func(disk *faultfs.Memory, fuse int64, renew bool) (s *Store, operations int64) {
				fsys := faultfs.Wrap(disk)
				var n atomic.Int64
				hook := func(faultfs.Op, string) {
					if n.Add(1) == fuse {
						left = append(left, disk.KillClone(), disk.CrashClone(seeded(uint64(fuse))))
					}
				}
				if !renew {
					fsys.SetHook(hook)
				}
				s, err := Open(patient(fsys))
				if err != nil {
					t.Fatal(err)
				}
				if renew {
					fsys.SetHook(hook)
					err = s.Renew()
				}
				fsys.SetHook(nil)
				if err = errors.Join(err, s.close(nil)); err != nil {
					t.Fatal(err)
				}
				return s, n.Load()
			}
			s, operations := open(disk, fuse, true)
			if !s.Renewed() || s.ReadOnly() != nil || s.ID() != s.NextID() {
				t.Errorf("it is not the next folder: %s, %v", s.ID(), s.ReadOnly())
			}
			over = fuse > operations
			for i, d := range left[:len(left):len(left)] {
				if _, n := open(d.KillClone(), 1+(fuse*7+int64(i))%40, false); n > 40 {
					resumed++
				}
			}
			for _, d := range append(left, disk) {
				var notes int
				_, err := Verify(d, "/data", func(f Finding) {
					if !f.Damage {
						notes++
					}
				})
				if m, _ := readMeta(d, "/data"); err != nil || m.Renewing != uuid.Nil && notes != 1 {
					t.Errorf("verify tells %d notes of a folder that becomes %s: %v", notes, m.Renewing, err)
				}
				if oldOrNext(t, d, id, proven) {
					news++
				} else {
					olds++
				}
			}
		})
		if over || t.Failed() {
			break
		}
	}
	if olds == 0 || news == 0 || resumed == 0 {
		t.Errorf("%d old ones, %d new ones, %d finished by the next start: nothing was tested", olds, news, resumed)
	}
}

// A folder whose journal is whole is left as it is.
func TestAWholeFolderIsNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := faultfs.New(0)
		s, err := Open(patient(disk))
		if err != nil {
			t.Fatal(err)
		}
		id := s.ID()
		if err := s.Renew(); err != nil || s.ID() != id || s.Renewed() {
			t.Error(err, s.ID(), id)
		}
		if err := s.close(nil); err != nil {
			t.Fatal(err)
		}
	})
}

// tally counts the commits that are heard of.
type tally struct{ taken, told atomic.Int64 }

func (t *tally) Taken(int) { t.taken.Add(1) }
func (t *tally) Told()     { t.told.Add(1) }

// Who asked to hear of commits while the journal was corrupt hears of those of the next one.
func TestARenewedFoldersCommitsAreHeardOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, _, _ := lostJournal(t)
		s, err := Open(patient(disk))
		if err != nil {
			t.Fatal(err)
		}
		heard := &tally{}
		s.Hear(heard)
		if err := s.Renew(); err != nil {
			t.Fatal(err)
		}
		r := run(s)
		mustPut(t, r.mustLog(t, part(1), LogConfig{}), 1, 1, 2, 60)
		r.mustClose(t)
		if heard.taken.Load() == 0 || heard.told.Load() == 0 {
			t.Errorf("heard of %d commits taken, %d told", heard.taken.Load(), heard.told.Load())
		}
	})
}

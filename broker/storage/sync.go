package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"sync/atomic"

	"tidewire/internal/ident"
	"tidewire/internal/vfs"
)

// unsynced is what of a log's files is not known to be durable.
type unsynced struct {
	segments  []ident.Offset // their bytes
	snapshots []ident.Offset // likewise
	entries   bool           // of the folder
	version   uint64         // changes with each addition
}

func (u *unsynced) segment(base ident.Offset) { u.version++; u.segments = addOnce(u.segments, base) }

func (u *unsynced) snapshot(at ident.Offset) { u.version++; u.snapshots = addOnce(u.snapshots, at) }
func (u *unsynced) folder()                  { u.version++; u.entries = true }

// forget drops a segment that is removed.
func (u *unsynced) forget(base ident.Offset) {
	if i := slices.Index(u.segments, base); i >= 0 {
		u.segments = slices.Delete(u.segments, i, i+1)
	}
}

func addOnce(offsets []ident.Offset, o ident.Offset) []ident.Offset {
	if slices.Contains(offsets, o) {
		return offsets
	}
	return append(offsets, o)
}

// syncFiles makes everything in the log's folder durable. It needs flushMu.
func (l *Log) syncFiles() error {
	u := &l.unsynced
	for ; len(u.segments) > 0; u.segments = u.segments[:len(u.segments)-1] {
		if err := l.syncSegment(u.segments[len(u.segments)-1]); err != nil {
			return err
		}
	}
	for ; len(u.snapshots) > 0; u.snapshots = u.snapshots[:len(u.snapshots)-1] {
		name := l.path(u.snapshots[len(u.snapshots)-1], snapshotSuffix)
		// It may have been dropped since; and one that is lost is noticed by whoever reads it.
		if err := syncFile(l.store.cfg.FS, name); err != nil && !vfs.IsHarmed(err) {
			return fmt.Errorf("sync %s: %w", name, &syncError{err})
		}
	}
	if u.entries {
		if err := l.store.cfg.FS.SyncDir(l.dir); vfs.IsHarmed(err) {
			l.lostFolder(err)
		} else if err != nil {
			return fmt.Errorf("sync %s: %w", l.dir, &syncError{err})
		}
		u.entries = false
	}
	return nil
}

// syncHome is syncFiles for what an entry of the journal is about to name: the folder
// may be new, and has to be durable as well. It needs flushMu.
func (l *Log) syncHome() error {
	if err := l.syncFiles(); err != nil {
		return err
	}
	for dir := l.dir; l.dirNew && dir != l.store.cfg.Dir; dir = filepath.Dir(dir) {
		if err := ignoreMissing(l.store.cfg.FS.SyncDir(filepath.Dir(dir))); err != nil {
			return fmt.Errorf("sync %s: %w", filepath.Dir(dir), &syncError{err})
		}
	}
	l.dirNew = false
	return nil
}

func (l *Log) syncSegment(base ident.Offset) error {
	name := l.path(base, segmentSuffix)
	f, err := l.store.files.acquire(name)
	if errors.Is(err, fs.ErrNotExist) {
		l.missing(base)
		return nil
	}
	if vfs.IsHarmed(err) {
		l.setDamage(&Damage{Offset: base, File: name, Reason: err.Error()})
		return nil
	}
	if err != nil {
		return err
	}
	defer l.store.files.release(f)
	f.dirty.Store(false)
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", name, &syncError{err})
	}
	return nil
}

func syncFile(fsys vfs.FS, name string) error {
	f, err := fsys.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// synced notes that all was made durable otherwise. It needs flushMu.
func (l *Log) synced() {
	for _, base := range l.unsynced.segments {
		l.store.files.clean(l.path(base, segmentSuffix))
	}
	l.unsynced = unsynced{version: l.unsynced.version}
}

// missing reports a segment that the log names and whose file is not there:
// whatever this store removes it does not name any more.
func (l *Log) missing(base ident.Offset) {
	l.setDamage(&Damage{Offset: base, File: l.path(base, segmentSuffix), Reason: "the file is missing"})
}

// syncLater notes a folder whose entries the next checkpoint makes durable.
func (s *Store) syncLater(dir string) {
	s.dirsMu.Lock()
	defer s.dirsMu.Unlock()
	s.dirs[dir] = true
}

// takeDirs gives the folders noted so far.
func (s *Store) takeDirs() map[string]bool {
	s.dirsMu.Lock()
	defer s.dirsMu.Unlock()
	dirs := s.dirs
	s.dirs = map[string]bool{}
	return dirs
}

func (s *Store) syncDirs() error {
	dirs := s.takeDirs()
	for dir := range dirs {
		// A folder that was deleted meanwhile has nothing left to keep; whoever
		// deleted it made that durable.
		err := ignoreMissing(s.cfg.FS.SyncDir(dir))
		switch {
		case err == nil:
		case vfs.IsNoFiles(err):
			for left := range dirs { // those that were synced are gone from it
				s.syncLater(left)
			}
			return fmt.Errorf("sync %s: %w", dir, &syncError{err})
		case vfs.IsHarmed(err):
			s.log.Error("a folder cannot be synced; what is in it is damaged if it is lost", "folder", dir, "err", err)
		default:
			return fmt.Errorf("sync %s: %w", dir, &syncError{err})
		}
		delete(dirs, dir)
	}
	return nil
}

// syncWhole makes everything durable at once: with thousands of changed logs
// that takes a small part of the time.
func (s *Store) syncWhole() error {
	s.takeDirs()
	s.owed.Store(false)
	if err := s.whole.SyncAll(); err != nil {
		return fmt.Errorf("sync the file system of %s: %w", s.cfg.Dir, &syncError{err})
	}
	return nil
}

// oweWhole says whether a file may be closed with unsynced bytes: then the next
// checkpoint hears of every error of a write-back since the start.
func (s *Store) oweWhole() bool {
	if s.whole == nil {
		return false
	}
	s.owed.Store(true)
	return true
}

// syncError marks the failure of a sync: whatever its cause, also a lack of
// space, pages are lost and nothing can be trusted.
type syncError struct{ err error }

func (e *syncError) Error() string { return e.err.Error() }
func (e *syncError) Unwrap() error { return e.err }

// passes says that an operation may be tried again later: it lacked space, or an
// open file.
func passes(err error) bool {
	var s *syncError
	return vfs.IsNoFiles(err) || vfs.IsNoSpace(err) && !errors.As(err, &s)
}

// passing follows one kind of work that may have to wait, so that the log tells
// of each change once.
type passing struct{ lacks atomic.Int32 }

const (
	lacksNothing int32 = iota
	lacksSpace
	lacksFiles
)

// note takes how the work went: nil, or what it waits for.
func (p *passing) note(log *slog.Logger, work string, err error) {
	now := lacksNothing
	switch {
	case vfs.IsNoFiles(err):
		now = lacksFiles
	case err != nil:
		now = lacksSpace
	}
	switch was := p.lacks.Swap(now); {
	case was == now:
	case now == lacksNothing:
		log.Info("what had to wait for disk space or open files is done", "work", work)
	default:
		log.Warn("disk space or open files are lacking; it is tried again", "work", work, "err", err)
	}
}

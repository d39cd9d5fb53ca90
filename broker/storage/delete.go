package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"tidewire/broker/journal"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/vfs"
)

// Delete removes a partition for good: once it returned, nothing of it comes
// back. A crash in between is finished by the next start. In a folder that takes
// nothing new the partition is only forgotten, and found again at the next start:
// whoever decided has to remember it until the folder is whole.
func (s *Store) Delete(p ident.Partition) error {
	return s.drop(p, entryDelete, removed)
}

// Quarantine takes a partition out of the store and sets its files aside.
func (s *Store) Quarantine(p ident.Partition) error {
	return s.drop(p, entryAside, setAside)
}

// Replace sets a partition's files aside and leaves it without any, so that the
// next call of Log gives a fresh log to fetch everything into again. It is for a
// damaged log of which others have copies. When it returns that is durable; a crash
// leaves the old log or a fresh one. The old *Log refuses everything from then on.
func (s *Store) Replace(p ident.Partition) error {
	if s.readOnly != nil {
		return &fault.Error{Kind: fault.LeaderUnavailable, Op: "storage.replace", Err: fmt.Errorf("partition %s: the journal is corrupt, so nothing can be written to this data folder, a fresh log neither: %w", p, s.readOnly)}
	}
	if err := s.Quarantine(p); err != nil {
		return err
	}
	if !s.isGone(p) {
		return nil
	}
	s.checkMu.Lock()
	err := s.clearLingering()
	s.checkMu.Unlock()
	if s.isGone(p) {
		return errors.Join(fmt.Errorf("the files of %s cannot be set aside yet; it is tried again", p), err)
	}
	return nil
}

func (s *Store) isGone(p ident.Partition) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, gone := s.gone[p]
	return gone
}

func (s *Store) drop(p ident.Partition, t journal.Type, fate fate) error {
	s.mu.Lock()
	l := s.logs[p]
	s.mu.Unlock()
	if l == nil {
		return nil
	}
	if s.readOnly != nil {
		s.forget(l, fate)
		return nil
	}
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	if err := l.flushLocked(); err != nil && !passes(err) { // so that what is set aside is whole
		return err
	}
	l.mu.Lock()
	if l.deleted {
		l.mu.Unlock()
		return nil
	}
	l.deleted = true // before the entry: no batch comes behind it
	left := l.tailBytes
	l.mu.Unlock()
	if err := s.appendEntry(context.Background(), t, appendPartition(nil, p)); err != nil {
		l.mu.Lock()
		l.deleted = false
		l.mu.Unlock()
		return fmt.Errorf("delete %s: %w", p, err)
	}
	s.unflushed.Add(-left)
	s.mu.Lock()
	delete(s.logs, p)
	s.gone[p] = fate
	s.mu.Unlock()
	l.mu.Lock()
	segs := l.segs
	l.tail, l.durableTail, l.tailBytes, l.readyBytes = nil, 0, 0, 0
	l.mu.Unlock()
	for _, g := range segs {
		s.files.forget(l.path(g.base, segmentSuffix))
		s.indexes.drop(l.path(g.base, indexSuffix))
	}
	switch err := s.putAway(l.dir, fate); {
	case passes(err) || vfs.IsHarmed(err):
		s.linger(p, fate, err)
		return nil // that it is gone is durable
	case err != nil:
		return fmt.Errorf("delete %s: %w", p, err)
	}
	s.mu.Lock()
	delete(s.gone, p) // durable: no checkpoint has to remember it
	s.mu.Unlock()
	return nil
}

// forget takes a partition out without touching the disk.
func (s *Store) forget(l *Log, fate fate) {
	l.mu.Lock()
	l.deleted = true
	l.mu.Unlock()
	s.mu.Lock()
	delete(s.logs, l.part)
	s.gone[l.part] = fate
	s.mu.Unlock()
	s.log.Warn("a partition was taken out, but the data folder takes nothing new: its files stay until the folder is whole", "partition", l.part.String())
}

// linger notes that the folder of a partition that was taken out is still
// there: every checkpoint tries again, and says so to the next start.
func (s *Store) linger(p ident.Partition, fate fate, err error) {
	s.mu.Lock()
	s.gone[p] = fate
	s.lingering = append(s.lingering, p)
	s.mu.Unlock()
	s.log.Warn("the folder of a partition that was taken out stays for now", "partition", p.String(), "err", err)
}

// clearLingering tries again. Only a checkpoint calls it.
func (s *Store) clearLingering() error {
	s.mu.Lock()
	left := s.lingering
	s.lingering = nil
	s.mu.Unlock()
	for i, p := range left {
		s.mu.Lock()
		fate := s.gone[p]
		s.mu.Unlock()
		err := s.putAway(partitionDir(s.cfg.Dir, p), fate)
		s.mu.Lock()
		switch {
		case err == nil:
			delete(s.gone, p)
		case passes(err):
			s.lingering = append(s.lingering, left[i:]...)
		case vfs.IsHarmed(err):
			s.lingering = append(s.lingering, p)
		}
		s.mu.Unlock()
		if err != nil && !vfs.IsHarmed(err) {
			return fmt.Errorf("delete %s: %w", p, err)
		}
	}
	return nil
}

// putAway does with a folder what was decided; it may be done already.
func (s *Store) putAway(dir string, fate fate) error {
	if fate == removed {
		return s.removeFolder(dir)
	}
	if err := s.setAside(dir); err != nil {
		return err
	}
	return s.removeEmptyTopic(filepath.Dir(dir))
}

// removeFolder removes a partition's folder, durably, and its topic's if that
// was the last one.
func (s *Store) removeFolder(dir string) error {
	topic := filepath.Dir(dir)
	if err := vfs.RemoveAll(s.cfg.FS, dir); err != nil {
		return err
	}
	// Without the topic's folder it was the last one, in a former life or
	// because another partition's deletion saw it empty just now.
	if err := ignoreMissing(s.cfg.FS.SyncDir(topic)); err != nil {
		return err
	}
	return s.removeEmptyTopic(topic)
}

// removeEmptyTopic removes a topic's folder if nothing is in it any more.
func (s *Store) removeEmptyTopic(topic string) error {
	rest, err := s.cfg.FS.ReadDir(topic)
	if ignoreMissing(err) != nil {
		return err
	}
	if err == nil && len(rest) == 0 {
		// Another partition of the topic may be making its folder just now:
		// then the removal fails, and that is right.
		if err := ignoreMissing(s.cfg.FS.Remove(topic)); err != nil {
			s.log.Info("a topic's folder stays", "folder", topic, "err", err)
		}
	}
	// Whoever removed it, and also if it was made anew since: the old one must
	// not come back with what was in it.
	return s.cfg.FS.SyncDir(filepath.Dir(topic))
}

// setAside moves a file or folder to quarantine/, under a name that says where
// it came from.
func (s *Store) setAside(path string) error {
	home := quarantineDir(s.cfg.Dir)
	if _, err := s.cfg.FS.Stat(path); errors.Is(err, fs.ErrNotExist) {
		// A former life may have moved it and died before that was durable.
		for _, dir := range []string{s.cfg.Dir, home, topicsDir(s.cfg.Dir), filepath.Dir(path)} {
			if err := ignoreMissing(s.cfg.FS.SyncDir(dir)); err != nil {
				return err
			}
		}
		return nil
	} else if err != nil {
		return err
	}
	if err := vfs.MkdirAll(s.cfg.FS, home); err != nil {
		return err
	}
	rel, err := filepath.Rel(topicsDir(s.cfg.Dir), path)
	if err != nil {
		return err
	}
	name := strings.ReplaceAll(rel, string(filepath.Separator), "_")
	to := filepath.Join(home, name)
	for i := 1; ; i++ {
		if _, err := s.cfg.FS.Stat(to); err != nil {
			if ignoreMissing(err) != nil {
				return err
			}
			break
		}
		to = filepath.Join(home, name+"."+strconv.Itoa(i))
	}
	if err := s.cfg.FS.Rename(path, to); err != nil {
		return err
	}
	s.log.Warn("set aside what is not known here", "from", path, "to", to)
	return errors.Join(s.cfg.FS.SyncDir(s.cfg.Dir), s.cfg.FS.SyncDir(home), s.cfg.FS.SyncDir(filepath.Dir(path)))
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

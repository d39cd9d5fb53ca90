package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/google/uuid"

	"tidewire/internal/ident"
	"tidewire/internal/vfs"
)

// NextID is the id that the data folder has once it is renewed. It is drawn when the
// folder is opened, and means nothing in one whose journal is whole.
func (s *Store) NextID() ident.StorageID { return ident.StorageID(s.next) }

// Renewed says whether the folder was begun anew since this process opened it, now or by
// finishing what a former life had begun: whatever is held here was lost, or is fetched
// from others.
func (s *Store) Renewed() bool { return s.renewed }

/*
Renew begins a data folder anew whose journal is corrupt: what it holds is set aside,
whole, and it is another folder from then on, with the id NextID and nothing in it but
the small values. Call it once nobody counts on what the old one held, before any log was
asked for and before Run. In a folder whose journal is whole it does nothing.

The first step, a mark in storage.json, is the decision: a crash before it leaves the old
folder, and after it the next Open goes on to the end. Each step finds out by itself
whether it was taken.

	storage.json    gets the mark, which is the next id
	quarantine/before-<next id>/
	    storage.json    the old one: together with the rest it is a data folder
	    topics/         moved
	    journal/        moved
	journal/        founded, with the next id
	storage.json    has the next id, and no mark
*/
func (s *Store) Renew() error {
	if s.readOnly == nil {
		return nil
	}
	s.log.Warn("the data folder is begun anew, because its journal is corrupt and others have what it held", "storage", s.ID().String(), "next", s.NextID().String())
	if err := s.renewFolder(s.next); err != nil {
		return fmt.Errorf("begin the data folder anew: %w", err)
	}
	s.files.close()
	s.forgetLogs()
	s.readOnly = nil
	return s.load()
}

// renewFolder does all that is left to do on the disk. Until it returns nobody else
// changes storage.json.
func (s *Store) renewFolder(next uuid.UUID) error {
	s.meta.mu.Lock()
	defer s.meta.mu.Unlock()
	old := s.meta.file
	old.Renewing = uuid.Nil
	marked := old
	marked.Renewing = next
	if err := writeMeta(s.cfg.FS, s.cfg.Dir, marked); err != nil {
		return err
	}
	if err := s.setFolderAside(old, next); err != nil {
		return err
	}
	if err := s.foundJournal(ident.StorageID(next)); err != nil {
		return err
	}
	begun := old
	begun.Storage = next
	if err := writeMeta(s.cfg.FS, s.cfg.Dir, begun); err != nil {
		return err
	}
	s.meta.file = begun
	s.renewed = true
	return nil
}

// asideFor is where all goes that a folder held before it got an id.
func asideFor(dir string, next uuid.UUID) string {
	return filepath.Join(quarantineDir(dir), "before-"+next.String())
}

// setFolderAside moves what the folder holds, durably, into a data folder of its own.
func (s *Store) setFolderAside(old metaFile, next uuid.UUID) error {
	fsys, quarantine := s.cfg.FS, quarantineDir(s.cfg.Dir)
	home := asideFor(s.cfg.Dir, next)
	if err := vfs.MkdirAll(fsys, home); err != nil {
		return err
	}
	if err := writeMeta(fsys, home, old); err != nil {
		return err
	}
	for _, of := range []func(string) string{topicsDir, journalDir} {
		from, to := of(s.cfg.Dir), of(home)
		switch _, err := fsys.Stat(to); {
		case err == nil:
			continue // by a former life; what stands in its place is of the next folder
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
		if err := ignoreMissing(fsys.Rename(from, to)); err != nil {
			return err
		}
	}
	// Also of what a former life did and did not live to make durable.
	return errors.Join(fsys.SyncDir(home), fsys.SyncDir(quarantine), fsys.SyncDir(s.cfg.Dir))
}

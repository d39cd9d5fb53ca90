package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/google/uuid"

	"tidewire/broker/journal"
	"tidewire/internal/ident"
	"tidewire/internal/vfs"
)

// found makes a new data folder. Its file comes last: without it nothing here
// was ever used.
func (s *Store) found() error {
	infos, err := s.cfg.FS.ReadDir(s.cfg.Dir)
	if err != nil {
		return err
	}
	for _, info := range infos {
		if info.Name != "topics" {
			continue
		}
		if topics, err := s.cfg.FS.ReadDir(topicsDir(s.cfg.Dir)); err != nil || len(topics) > 0 {
			return fmt.Errorf("%s holds topics but no storage.json: restore it from a backup, or move the data folder aside", s.cfg.Dir)
		}
	}
	if used, err := journal.Used(s.cfg.FS, journalDir(s.cfg.Dir)); err != nil {
		return err
	} else if used {
		return fmt.Errorf("%s holds a journal that was written to, but no storage.json: restore it from a backup, or move the data folder aside", s.cfg.Dir)
	}
	// Whoever made the folder may have died before that was durable.
	if err := s.cfg.FS.SyncDir(filepath.Dir(s.cfg.Dir)); err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	id, err := uuid.NewRandom()
	if err != nil {
		return err
	}
	if err := s.foundJournal(ident.StorageID(id)); err != nil {
		return err
	}
	s.meta.file = metaFile{Format: formatVersion, Storage: id, Values: map[string]string{}}
	return writeMeta(s.cfg.FS, s.cfg.Dir, s.meta.file)
}

// foundJournal makes an empty journal, and room for topics. What is there already is
// left of a founding that was cut short.
func (s *Store) foundJournal(id ident.StorageID) error {
	if err := vfs.RemoveAll(s.cfg.FS, journalDir(s.cfg.Dir)); err != nil {
		return err
	}
	if err := vfs.MkdirAll(s.cfg.FS, journalDir(s.cfg.Dir)); err != nil {
		return err
	}
	cfg := s.cfg.journal()
	cfg.Storage = id
	if err := journal.Found(cfg); err != nil {
		return err
	}
	return vfs.MkdirAll(s.cfg.FS, topicsDir(s.cfg.Dir))
}

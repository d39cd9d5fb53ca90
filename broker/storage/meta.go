package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"sync"

	"github.com/google/uuid"

	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/vfs"
)

const formatVersion = 1

// metaFile is storage.json. It is state, not a cache: a folder whose file is
// damaged is refused, because with another id it would pass for a new disk.
type metaFile struct {
	Format   int               `json:"format"`
	Storage  uuid.UUID         `json:"storage"`
	Renewing uuid.UUID         `json:"renewing,omitzero"` // the id that it is getting: what it held is being set aside
	Values   map[string]string `json:"values"`
	Checksum string            `json:"checksum"` // CRC-32C of this object with an empty checksum
}

func (m metaFile) sum() string {
	m.Checksum = ""
	b, err := json.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("invariant: strings can be encoded: %v", err))
	}
	return fmt.Sprintf("%08x", record.Checksum(b))
}

// ErrNotFound says that there is no data folder yet.
var ErrNotFound = errors.New("not a data folder")

func readMeta(fsys vfs.FS, dir string) (metaFile, error) {
	data, err := vfs.ReadFile(fsys, metaPath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return metaFile{}, fmt.Errorf("%s: %w", dir, ErrNotFound)
	}
	if err != nil {
		return metaFile{}, err
	}
	var m metaFile
	if err := json.Unmarshal(data, &m); err != nil {
		return metaFile{}, fmt.Errorf("%s is damaged: %w; restore it from a backup, or move the data folder aside", metaPath(dir), err)
	}
	if m.Format != formatVersion {
		return metaFile{}, fmt.Errorf("%s has format %d, this program reads %d: run the version that wrote it or, if the file is damaged, restore it from a backup",
			metaPath(dir), m.Format, formatVersion)
	}
	if m.sum() != m.Checksum {
		return metaFile{}, fmt.Errorf("%s is damaged: its checksum is wrong; restore it from a backup, or move the data folder aside", metaPath(dir))
	}
	return m, nil
}

// ReadMeta reads the small values of a data folder that is not open, and changes
// nothing. ErrNotFound says that there is no data folder yet.
func ReadMeta(fsys vfs.FS, dir string) (map[string]string, error) {
	m, err := readMeta(fsys, dir)
	return m.Values, err
}

func writeMeta(fsys vfs.FS, dir string, m metaFile) error {
	m.Checksum = m.sum()
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return vfs.WriteAtomic(fsys, metaPath(dir), append(b, '\n'))
}

// meta guards the file: values are few and change seldom.
type meta struct {
	mu   sync.Mutex
	file metaFile
}

// ID is the data folder's own id.
func (s *Store) ID() ident.StorageID {
	s.meta.mu.Lock()
	defer s.meta.mu.Unlock()
	return ident.StorageID(s.meta.file.Storage)
}

// PutMeta keeps a small value; it is durable when the call returns.
func (s *Store) PutMeta(key, value string) error {
	s.meta.mu.Lock() // the lock is what makes two writers of one file take turns
	defer s.meta.mu.Unlock()
	next := s.meta.file
	next.Values = maps.Clone(next.Values)
	if next.Values == nil {
		next.Values = map[string]string{}
	}
	next.Values[key] = value
	if err := writeMeta(s.cfg.FS, s.cfg.Dir, next); err != nil {
		return fmt.Errorf("write %s: %w", metaPath(s.cfg.Dir), err)
	}
	s.meta.file = next
	return nil
}

// GetMeta is the value that was put last, and whether there is one.
func (s *Store) GetMeta(key string) (string, bool) {
	s.meta.mu.Lock()
	defer s.meta.mu.Unlock()
	v, ok := s.meta.file.Values[key]
	return v, ok
}

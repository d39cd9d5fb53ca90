package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"tidewire/internal/ident"
	"tidewire/internal/vfs"
)

// Somebody may take files of a partition away, put others in their place or
// forbid them. That harms this partition and no other: its damage is told, it
// takes nothing new, and what waits to be written finds another place.

// why is an error without the path, which clients need not hear of.
func why(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "it is missing"
	}
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Op + ": " + p.Err.Error()
	}
	return err.Error()
}

// lostFolder notes that the folder is not what it was. Without segments nothing
// was in it. It needs flushMu.
func (l *Log) lostFolder(cause error) {
	l.dirMade = false
	l.mu.Lock()
	segs := l.segs
	l.mu.Unlock()
	if len(segs) > 0 {
		l.setDamage(&Damage{Offset: segs[0].base, File: l.dir, Reason: "the folder cannot be used: " + why(cause)})
	}
}

// openSegment opens the file of a segment to write to it. Where somebody took
// it away, what is left of the tail goes to a new one in its place. It needs flushMu.
func (l *Log) openSegment(base ident.Offset) (*cachedFile, error) {
	name := l.path(base, segmentSuffix)
	// An open file whose name is gone takes everything and keeps nothing.
	info, err := l.store.cfg.FS.Stat(name)
	switch {
	case err == nil && !info.IsDir:
		return l.store.files.acquire(name)
	case err == nil:
		return nil, &fs.PathError{Op: "open", Path: name, Err: errors.Join(errFolder, fs.ErrExist)}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	l.missing(base)
	if err := l.createSegment(base); err != nil {
		return nil, err
	}
	return l.store.files.acquire(name)
}

// rescue keeps batches that cannot be written to their place under quarantine/.
// The log goes on as if they had been: the next start finds them missing.
func (l *Log) rescue(base ident.Offset, pos int64, first ident.Offset, b []byte, cause error) error {
	l.setDamage(&Damage{Offset: first, File: l.path(base, segmentSuffix), Pos: pos, Reason: "the segment cannot be written to: " + why(cause)})
	fsys, home := l.store.cfg.FS, quarantineDir(l.store.cfg.Dir)
	if _, err := fsys.Stat(home); errors.Is(err, fs.ErrNotExist) {
		// Not its parents: without the data folder there is no place at all.
		if err := fsys.Mkdir(home); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%w, because of %w", err, cause)
		}
	}
	name := filepath.Join(home, strings.ReplaceAll(l.part.String(), "/", "_")+"_"+offsetName(first, segmentSuffix))
	if err := errors.Join(vfs.WriteAtomic(fsys, name, b), fsys.SyncDir(l.store.cfg.Dir)); err != nil {
		return fmt.Errorf("%w, because of %w", err, cause)
	}
	l.store.log.Error("records that cannot be written to their segment were set aside", "partition", l.part.String(), "offset", int64(first), "to", name, "err", cause)
	return nil
}

var errFolder = errors.New("it is a folder")

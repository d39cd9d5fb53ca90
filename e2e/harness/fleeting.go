package harness

import (
	"errors"

	"tidewire/internal/vfs"
)

// fleeting is the machine's file system for what nobody needs after the process: nothing
// is made durable. A sync would wait for the disk, and for whatever else is to be written
// to it just then.
type fleeting struct{ vfs.OS }

// Create makes a file.
func (f fleeting) Create(name string) (vfs.File, error) { return unsynced(f.OS.Create(name)) }

// Open opens a file.
func (f fleeting) Open(name string) (vfs.File, error) { return unsynced(f.OS.Open(name)) }

// OpenWrite opens a file.
func (f fleeting) OpenWrite(name string) (vfs.File, error) { return unsynced(f.OS.OpenWrite(name)) }

// SyncDir does nothing.
func (fleeting) SyncDir(string) error { return nil }

// Whole is not there, so that each file is synced for itself, which does nothing.
func (fleeting) Whole(string) (vfs.Whole, error) { return nil, errors.ErrUnsupported }

type unsyncedFile struct{ vfs.File }

func unsynced(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return unsyncedFile{f}, nil
}

// Sync does nothing.
func (unsyncedFile) Sync() error { return nil }

package vfs

import (
	"errors"
	"io"
	"io/fs"
	"syscall"
)

// File is an open file. All methods may be called concurrently; two writes to
// the same bytes are the caller's to order.
type File interface {
	io.ReaderAt
	io.WriterAt
	// Sync makes the bytes written so far durable (fdatasync: contents and
	// size, not times). An error means that nobody knows what is on the disk
	// and that the page cache cannot be trusted any more: never try again.
	Sync() error
	Truncate(size int64) error
	Size() (int64, error)
	Close() error
}

// WriteSoon asks the system to begin writing a part of a file to its disk, where
// it can be asked. Nothing is promised by it, and its errors are those of the next
// Sync: it only spares that Sync from finding all there is to write.
func WriteSoon(f File, off, bytes int64) {
	if w, ok := f.(interface{ writeSoon(off, bytes int64) }); ok {
		w.writeSoon(off, bytes)
	}
}

// Whole is an open file system.
type Whole interface {
	// SyncAll makes durable what was written to any file and what was changed
	// in any folder so far. Its errors are those of File.Sync, also of writes
	// that happened in the background since Whole was opened.
	SyncAll() error
	Close() error
}

// Info describes a file or folder.
type Info struct {
	Name  string // the last element of its path
	Size  int64
	IsDir bool
}

// FS is a file system. Missing files give errors that are fs.ErrNotExist.
type FS interface {
	// Create makes a new file and opens it for reading and writing. It is an
	// error (fs.ErrExist) if there is one.
	Create(name string) (File, error)
	// Open opens a file for reading; it may be synced through the handle.
	Open(name string) (File, error)
	// OpenWrite opens an existing file for reading and writing.
	OpenWrite(name string) (File, error)
	// Mkdir makes a folder; its parent has to exist.
	Mkdir(name string) error
	// Remove removes a file or an empty folder.
	Remove(name string) error
	Rename(from, to string) error
	// ReadDir lists a folder, sorted by name.
	ReadDir(name string) ([]Info, error)
	Stat(name string) (Info, error)
	// SyncDir makes the entries of a folder durable.
	SyncDir(name string) error
	// Whole opens the file system that a folder lies in, to sync all of it at
	// once. It fails with errors.ErrUnsupported where that would not report
	// every error of a write since the call.
	Whole(dir string) (Whole, error)
	// Free is the space that this process may still use, in bytes.
	Free(dir string) (int64, error)
	// Lock takes an exclusive lock on a file, creating it if needed, and fails
	// with ErrLocked if another process holds it. Closing gives it back.
	Lock(name string) (io.Closer, error)
}

// ErrLocked says that another process holds the lock.
var ErrLocked = errors.New("locked by another process")

// IsNoSpace reports whether an error is about space that may come back, as
// opposed to a disk that broke.
func IsNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// IsNoFiles reports whether an error is about open files that the process or
// the machine has no more of. It comes from opening alone, so nothing was done,
// and it passes as soon as something is closed.
func IsNoFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// IsHarmed reports whether an error says that a name does not lead to a file
// that can be used: it is missing, something else is in its place, or it is
// not allowed. The disk is not to blame: somebody changed what is on it.
func IsHarmed(err error) bool {
	for _, e := range []error{fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, syscall.ENOTDIR, syscall.EISDIR, syscall.ELOOP} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

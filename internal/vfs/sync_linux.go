package vfs

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// syncData is fdatasync: on a file that is filled ahead it writes the data and
// leaves the file system's own journal alone.
func syncData(f *os.File) error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return &os.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
		}
		return nil
	}
}

// writeSoon has the kernel write what of the range is not being written yet. It
// waits for nothing, and takes no error away from the next fdatasync.
func (f osFile) writeSoon(off, bytes int64) {
	_ = unix.SyncFileRange(int(f.Fd()), off, bytes, unix.SYNC_FILE_RANGE_WRITE) // a hint
}

// osWhole is a folder's handle: the kernel remembers for it which errors of the
// file system it has not been told yet.
type osWhole struct{ *os.File }

// The first Linux whose syncfs reports errors of write-back.
const syncfsTellsMajor, syncfsTellsMinor = 5, 8

func openWhole(dir string) (Whole, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return nil, &os.PathError{Op: "uname", Path: dir, Err: err}
	}
	release := unix.ByteSliceToString(name.Release[:])
	if !syncfsTells(release) {
		return nil, fmt.Errorf("syncfs on Linux %s: %w", release, errors.ErrUnsupported)
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	return osWhole{f}, nil
}

func syncfsTells(release string) bool {
	var major, minor int
	if n, err := fmt.Sscanf(release, "%d.%d", &major, &minor); n != 2 || err != nil {
		return false
	}
	return major > syncfsTellsMajor || major == syncfsTellsMajor && minor >= syncfsTellsMinor
}

func (w osWhole) SyncAll() error {
	for {
		err := unix.Syncfs(int(w.Fd()))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return &os.PathError{Op: "syncfs", Path: w.Name(), Err: err}
		}
		return nil
	}
}

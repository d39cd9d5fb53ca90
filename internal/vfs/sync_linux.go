package vfs

import (
	"os"
	"syscall"
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

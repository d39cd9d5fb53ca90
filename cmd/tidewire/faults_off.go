//go:build !faultfs

package main

import "tidewire/internal/vfs"

// dataDisk is the file system under a node's data folder, and what of the
// environment is left for its settings: the machine's own disk and all of it.
// A binary built with the tag faultfs has a disk that tests can make fail.
func dataDisk(environ []string) (disk vfs.FS, rest []string, err error) {
	return vfs.OS{}, environ, nil
}

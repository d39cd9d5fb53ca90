package vfs

import (
	"path/filepath"
	"slices"
)

// Home is the data folder of a file or folder in one of its rooms (journal,
// topics, raft), so that a message about the file can say what to call with the
// folder. A path without a room is its own.
func Home(path string) string {
	for at := filepath.Clean(path); filepath.Dir(at) != at; at = filepath.Dir(at) {
		if slices.Contains([]string{"journal", "topics", "raft", "raft.founding"}, filepath.Base(at)) {
			return filepath.Dir(at)
		}
	}
	return path
}

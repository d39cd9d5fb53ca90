package storage

import (
	"slices"
	"testing"
)

// A log that is cut to its start keeps something that others can begin with there, though it
// may have a snapshot of before its start, which nobody can.
func TestACutToTheStartLeavesASnapshotOfIt(t *testing.T) {
	s := state{start: 145, committed: 178, snaps: []snapshotRef{{at: 160}, {at: 120}}}
	s.next = 145
	s.cutSnaps()
	if !slices.Equal(s.snaps, []snapshotRef{{at: 145}}) || s.committed != 145 {
		t.Fatal(s.snaps, s.committed)
	}
	s.snaps = []snapshotRef{{at: 160}, {at: 145, bytes: 7}, {at: 120}}
	s.cutSnaps()
	if !slices.Equal(s.snaps, []snapshotRef{{at: 145, bytes: 7}, {at: 120}}) {
		t.Fatal(s.snaps)
	}
}

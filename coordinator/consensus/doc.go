// Package consensus keeps the coordinator's commands under Raft. It is the only
// importer of hashicorp/raft and raft-boltdb.
//
// It promises: a command whose Apply returned without error is on disk at a
// quorum and applied here. A node that is its cluster's only voter leads within
// milliseconds of Open, whatever address it listens on this time.
//
// A cluster begins with one voter; every other coordinator comes in on one way: it
// starts with an empty folder and no say, a leader takes it in without a vote, and
// gives it one when it has caught up. A stop hands leadership over and takes nobody
// out. A leader whose disk hangs falls silent, so that another leads; one whose disk
// is full hands over. Addresses may change at any time: connections say by ids who
// calls whom, in which cluster, and anything else is closed. What a leader announces
// as committed the others apply at once; of the rest they hear with what comes next,
// or some 50 to 100 ms later.
//
// The folder, below the data folder:
//
//	raft/raft.db              log, term and vote (bbolt; every entry and value with a CRC-32C)
//	raft/mark                 the last index written, beside raft.db, without fsync
//	raft/snapshots/<id>/      state.bin and meta.json, the latest two
//
// A cluster is founded exactly once: into raft.founding, which becomes raft by a
// rename when it is whole; the empty folder of a node that joins is made likewise. So a raft folder is never half made, and one that
// is empty or lacks its file has lost it.
//
// Before anything opens the folder, Verify reads all of it with plain reads:
// the pages of raft.db, each entry's checksum and order, each snapshot, and
// that they belong together. If state could be missing or wrong, Open refuses, says
// which file and why, and changes nothing. The mark tells a raft.db that fell back
// to an earlier commit, by a damaged root or a restored copy, from one that is whole.
//
// What the disk does: no space in a write of the log is a refusal, and saving a
// term waits for space to return; any other failed write or fsync ends Run with
// an error, and the process with it, because nothing after it can be trusted.
package consensus

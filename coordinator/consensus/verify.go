package consensus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/raft"

	"tidewire/coordinator/consensus/boltcheck"
	"tidewire/internal/ident"
	"tidewire/internal/vfs"
)

const (
	folder         = "raft"
	foundingFolder = "raft.founding"
	dbFile         = "raft.db"
	snapshotFolder = "snapshots"
)

// The keys of raft-boltdb's stable store that are used here. The first three
// are raft's.
const (
	keyTerm         = "CurrentTerm"
	keySnapshotMade = "LastSnapshot" // index of the latest snapshot that was finished
	keySnapshotSent = "SentSnapshot" // index of the latest one that a leader sent, from before it came
	keyOwner        = "Owner"        // the id of the node that made the folder
	keyJoined       = "Joined"       // 1: it was made empty, by a node that joins
)

// Checks look into what the state machine put into the log. They are pure.
type Checks struct {
	Command  func([]byte) error
	Snapshot func([]byte) (index uint64, err error) // the last command it holds
}

// Report is what Verify found in a good folder.
type Report struct {
	Exists        bool
	First, Last   uint64 // entries of the log
	Term          uint64
	Snapshot      uint64 // index of the snapshot the state is restored from; 0: none
	Configuration raft.Configuration
	Owner         ident.NodeID // who made the folder; zero: it does not say
}

// belongs says whether the folder is a node's: one that does not say whose it is names
// its node as a voter.
func (r *Report) belongs(id ident.NodeID) bool {
	if r.Owner != (ident.NodeID{}) {
		return r.Owner == id
	}
	return votes(r.Configuration, raft.ServerID(id.String()))
}

// Damage says that the folder does not hold the state it should. Nothing was
// changed.
type Damage struct {
	File string
	Err  error
}

func (d *Damage) Error() string {
	return fmt.Sprintf("the coordinator's store is damaged: %s: %v. Nothing was changed. In a cluster, replace the node: move its data folder aside and start it with --join. "+
		"Of a node alone, restore the whole data folder from a backup. `tidewire log verify --data %s` says more", d.File, d.Err, vfs.Home(d.File))
}

func (d *Damage) Unwrap() error { return d.Err }

func damaged(file, format string, args ...any) error {
	return &Damage{File: file, Err: fmt.Errorf(format, args...)}
}

// Verify reads the whole folder below dir without changing or locking it for
// longer than it reads. minIndex is the highest index that anyone is known to have
// acted on. A folder that was never founded gives a Report that says so.
func Verify(dir string, minIndex uint64, checks Checks) (Report, error) {
	root := filepath.Join(dir, folder)
	if _, err := os.Lstat(root); errors.Is(err, fs.ErrNotExist) {
		if minIndex > 0 {
			return Report{}, damaged(root, "the folder is missing, but this node has acted on entry %d of it", minIndex)
		}
		return Report{}, nil
	} else if err != nil {
		return Report{}, err
	}
	v := verifier{root: root, db: filepath.Join(root, dbFile), checks: checks}
	if err := v.store(); err != nil {
		return Report{}, err
	}
	snap, err := verifySnapshots(filepath.Join(root, snapshotFolder), checks)
	if err != nil {
		return Report{}, err
	}
	return v.together(snap, minIndex)
}

type verifier struct {
	root, db string
	checks   Checks

	report       Report
	lastTerm     uint64
	snapshotMade uint64
	snapshotSent uint64
	joined       bool
}

// store reads every page of raft.db, every entry and every value.
func (v *verifier) store() error {
	f, err := os.Open(v.db)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return damaged(v.db, "the file is missing")
		}
		return err
	}
	defer f.Close() // read only
	// Shared with other readers, not with a process that has the store open.
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("%s is open in another process (%w): is a node running on this data folder?", v.db, err)
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return damaged(v.db, "this is no file")
	}
	buckets := 0
	err = boltcheck.Check(f, info.Size(), func(bucket string, key, value []byte) error {
		switch bucket {
		case "logs":
			return v.entry(key, value)
		case "conf":
			buckets++
			return v.value(key, value)
		}
		return fmt.Errorf("there is no bucket %q", bucket)
	})
	if err != nil {
		return damaged(v.db, "%w", err)
	}
	// A node that joins begins with nothing, and a leader's snapshot takes the place of
	// a whole log.
	if v.report.Last == 0 && !v.joined && v.snapshotSent == 0 || buckets == 0 {
		return damaged(v.db, "it holds no entries, or no term")
	}
	if v.report.Term < v.lastTerm {
		return damaged(v.db, "its term is %d, older than that of its last entry, %d", v.report.Term, v.lastTerm)
	}
	return nil
}

func (v *verifier) value(key, stored []byte) error {
	val, err := unsealValue(key, stored)
	if err != nil {
		return err
	}
	switch string(key) {
	case keyTerm, keySnapshotMade, keySnapshotSent, keyJoined:
		if len(val) != 8 {
			return fmt.Errorf("%q is no number", key)
		}
	case keyOwner:
		if len(val) != len(v.report.Owner) {
			return fmt.Errorf("%q is no node's id", key)
		}
	}
	switch string(key) {
	case keyTerm:
		v.report.Term = binary.BigEndian.Uint64(val)
	case keySnapshotMade:
		v.snapshotMade = binary.BigEndian.Uint64(val)
	case keySnapshotSent:
		v.snapshotSent = binary.BigEndian.Uint64(val)
	case keyJoined:
		v.joined = true
	case keyOwner:
		copy(v.report.Owner[:], val)
	}
	return nil
}

func (v *verifier) entry(key, value []byte) error {
	if len(key) != 8 {
		return fmt.Errorf("the key of an entry has %d bytes", len(key))
	}
	index := binary.BigEndian.Uint64(key)
	if v.report.Last != 0 && index != v.report.Last+1 {
		return fmt.Errorf("entry %d follows entry %d", index, v.report.Last)
	}
	var l raft.Log
	if err := decodeEntry(value, &l); err != nil {
		return fmt.Errorf("entry %d: %w", index, err)
	}
	if err := checkSeal(index, &l); err != nil {
		return err
	}
	if l.Term < v.lastTerm {
		return fmt.Errorf("entry %d is of term %d, the one before it of term %d", index, l.Term, v.lastTerm)
	}
	switch l.Type {
	case raft.LogCommand:
		if err := v.checks.Command(l.Data); err != nil {
			return fmt.Errorf("entry %d: %w", index, err)
		}
	case raft.LogConfiguration:
		c, err := decodeConfiguration(l.Data)
		if err != nil {
			return fmt.Errorf("entry %d: %w", index, err)
		}
		v.report.Configuration = c
	}
	if v.report.First == 0 {
		v.report.First = index
	}
	v.report.Last, v.lastTerm = index, l.Term
	return nil
}

// together checks that log, snapshot, mark and what others acted on fit.
//
// A snapshot above the end of the log comes from a leader that sent it, and raft.db
// knows of it; else raft.db is older than it.
func (v *verifier) together(snap snapshotInfo, minIndex uint64) (Report, error) {
	r := v.report
	r.Exists = true
	r.Snapshot = snap.index
	end := max(r.Last, r.Snapshot)
	_, marked, _, err := readMark(v.root)
	switch {
	case err != nil:
		return Report{}, err
	case r.Last == 0 && snap.index == 0 && !(v.joined && v.snapshotMade == 0):
		return Report{}, damaged(filepath.Join(v.root, snapshotFolder), "the log is empty, and the snapshot that took its place is missing")
	case r.First > snap.index+1 && snap.index == 0:
		return Report{}, damaged(filepath.Join(v.root, snapshotFolder), "the log begins at entry %d and there is no snapshot of what came before", r.First)
	case r.First > snap.index+1:
		return Report{}, damaged(snap.path, "it ends at entry %d and the log begins at %d: a newer snapshot is missing", snap.index, r.First)
	case snap.index > r.Last && snap.index > v.snapshotSent:
		return Report{}, damaged(v.db, "it ends at entry %d, but there is a snapshot of entry %d: the file is older than it should be", r.Last, snap.index)
	case snap.index < v.snapshotMade:
		return Report{}, damaged(filepath.Join(v.root, snapshotFolder), "the snapshot of entry %d is missing", v.snapshotMade)
	case end < marked:
		return Report{}, damaged(v.db, "it ends at entry %d, but entry %d was written: the file is older than it should be", end, marked)
	case end < minIndex:
		return Report{}, damaged(v.db, "it ends at entry %d, but this node has acted on entry %d: the file is older than the rest of the data folder", end, minIndex)
	}
	if len(r.Configuration.Servers) == 0 || snap.index > r.Last {
		r.Configuration = snap.configuration
	}
	if len(r.Configuration.Servers) == 0 && end > 0 {
		return Report{}, damaged(v.db, "it names no coordinators")
	}
	return r, nil
}

// decodeEntry reads an entry as raft-boltdb wrote it.
func decodeEntry(b []byte, l *raft.Log) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("it does not parse: %v", r)
		}
	}()
	return codec.NewDecoderBytes(b, &codec.MsgpackHandle{}).Decode(l)
}

func decodeConfiguration(b []byte) (c raft.Configuration, err error) {
	defer func() {
		if r := recover(); r != nil { // raft panics on bytes it cannot read
			err = fmt.Errorf("it does not parse: %v", r)
		}
	}()
	return raft.DecodeConfiguration(b), nil
}

// votes reports whether a server of this id has a vote.
func votes(c raft.Configuration, id raft.ServerID) bool {
	for _, s := range c.Servers {
		if s.ID == id && s.Suffrage == raft.Voter {
			return true
		}
	}
	return false
}

package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/vfs"
)

// A producer snapshot file: its own checksum first, so that a damaged one is
// known, then what the partition's producer machine gave.
//
//	offset size
//	 0      8     magic "TWPRODUC"
//	 8      4     CRC-32C of bytes 12-…
//	12     20     partition
//	32      8     offset: the state is that of all records below it
//	40      …     state
const (
	snapshotMagic = "TWPRODUC"
	snapshotHead  = 40
)

func encodeSnapshot(p ident.Partition, at ident.Offset, state []byte) []byte {
	b := make([]byte, 12, snapshotHead+len(state))
	copy(b, snapshotMagic)
	b = appendPartition(b, p)
	b = binary.LittleEndian.AppendUint64(b, uint64(at))
	b = append(b, state...)
	binary.LittleEndian.PutUint32(b[8:], record.Checksum(b[12:]))
	return b
}

func decodeSnapshot(b []byte, p ident.Partition, ref snapshotRef) (state []byte, err error) {
	if len(b) < snapshotHead || string(b[:8]) != snapshotMagic {
		return nil, fmt.Errorf("snapshot: %w", errDecode)
	}
	sum := record.Checksum(b[12:])
	if sum != binary.LittleEndian.Uint32(b[8:]) || sum != ref.sum || uint32(len(b)) != ref.bytes {
		return nil, errors.New("snapshot: not the one that was kept")
	}
	d := &decoder{b: b[12:]}
	if d.partition() != p || d.offset() != ref.at || d.bad {
		return nil, errors.New("snapshot: of another partition or offset")
	}
	return b[snapshotHead:], nil
}

// SetSnapshotter says where the producer state comes from. The function gives
// it as of the log's end: everything below at is in it, durable or not, and it
// may be called whenever no method of the log is being called by its owner's
// lock. An empty state means that there is no producer.
func (l *Log) SetSnapshotter(f func() (at ident.Offset, state []byte)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.snapshotter = f
}

// snapshotAt is what an owner's snapshot function gave, if it was asked.
type snapshotAt struct {
	at    ident.Offset
	state []byte
	taken bool
	cuts  int // of the log before it was asked
}

// takeSnapshot asks for the state; no lock is held meanwhile.
func (l *Log) takeSnapshot() (s snapshotAt) {
	l.mu.Lock()
	f := l.snapshotter
	s.cuts = l.cuts
	l.mu.Unlock()
	if f != nil {
		s.at, s.state = f()
		s.taken = true
	}
	return s
}

// fitsLocked says whether a snapshot is one of what the log holds from start on: it
// was not cut since, and has come as far as the state that it was begun with.
func (l *Log) fitsLocked(s snapshotAt, start ident.Offset) bool {
	return s.taken && s.cuts == l.cuts && s.at >= max(start, l.ahead) && s.at <= l.next
}

// writeSnapshot writes a snapshot. It counts once a journal entry names the
// ref, and before that somebody makes it durable. The caller holds flushMu.
func (l *Log) writeSnapshot(at ident.Offset, state []byte) (snapshotRef, error) {
	l.mu.Lock()
	for _, have := range l.snaps {
		if have.at == at {
			// Only voids can have come since, and those are folded from here
			// on in any case. A file that is named is never replaced.
			l.mu.Unlock()
			return have, nil
		}
	}
	l.mu.Unlock()
	if len(state) == 0 {
		return snapshotRef{at: at}, nil
	}
	b := encodeSnapshot(l.part, at, state)
	ref := snapshotRef{at, uint32(len(b)), record.Checksum(b[12:])}
	return ref, l.writeSnapshotFile(at, b)
}

// writeSnapshotFile writes a snapshot's file anew; the next checkpoint syncs it.
func (l *Log) writeSnapshotFile(at ident.Offset, b []byte) error {
	fsys, name := l.store.cfg.FS, l.path(at, snapshotSuffix)
	if err := ignoreMissing(fsys.Remove(name)); err != nil {
		return err
	}
	f, err := l.create(name)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, fsys.Remove(name))
	}
	l.unsynced.snapshot(at)
	l.unsynced.folder()
	return nil
}

// Recovered is the newest producer state that can be trusted, and the offset
// it is as of: the owner folds the batches from there on. A nil state means
// that there is none, and at is the log start; a state that is empty but not
// nil says that there was no producer. The offset may lie above the log's end, if
// it was begun so: see Restart.
func (l *Log) Recovered() (at ident.Offset, state []byte) {
	l.mu.Lock()
	refs, start, next, ahead := append([]snapshotRef(nil), l.snaps...), l.start, l.next, l.ahead
	l.mu.Unlock()
	for _, ref := range refs {
		if ref.at > next && ref.at != ahead || ref.at < start {
			continue
		}
		state, err := l.readSnapshot(ref)
		for vfs.IsNoFiles(err) && l.store.waits() { // to go on without it would lose what only it knows
			state, err = l.readSnapshot(ref)
		}
		if err == nil {
			return ref.at, state
		}
		l.store.log.Warn("a producer snapshot cannot be used; the log is read instead",
			"partition", l.part.String(), "offset", int64(ref.at), "err", err)
	}
	if start > 0 && len(refs) > 0 {
		l.store.log.Error("no producer snapshot is left: repeats of records below the log start would not be noticed",
			"partition", l.part.String(), "offset", int64(start))
	}
	return start, nil
}

// dropSnapshots removes snapshot files that nothing names any more: neither the log,
// which may know better meanwhile, nor what is durable. A failure only leaves garbage.
func (l *Log) dropSnapshots(durable []snapshotRef) {
	l.mu.Lock()
	named := map[ident.Offset]bool{}
	for _, r := range slices.Concat(l.snaps, durable) {
		named[r.at] = true
	}
	l.mu.Unlock()
	infos, err := l.store.cfg.FS.ReadDir(l.dir)
	if err != nil {
		return
	}
	for _, info := range infos {
		if at, ok := parseOffsetName(info.Name, snapshotSuffix); ok && !named[at] {
			if err := l.store.cfg.FS.Remove(filepath.Join(l.dir, info.Name)); err != nil {
				l.store.log.Warn("an old producer snapshot stays", "file", info.Name, "err", err)
			}
		}
	}
}

package storage

import (
	"encoding/binary"
	"fmt"

	"tidewire/broker/journal"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/vfs"
)

// Restart is for a replica that lies behind its leader's log start: the log drops
// all it has and begins at start, with the producer state as of at, which is not
// below. When it returns that is durable; a crash leaves the old log or the new one.
//
// From then on the log ends at start, Recovered gives at and producers, and Fold
// from at on visits nothing, until the log has grown past at: what lies between
// start and at is in the producer state already, so its owner folds batches only
// from at on. A damaged log is no case for it, but for Store.Replace.
func (l *Log) Restart(start record.Position, producers []byte, at ident.Offset) error {
	if at < start.Offset {
		return fmt.Errorf("begin %s anew at offset %d: its producer state is of offset %d", l.part, start.Offset, at)
	}
	if err := l.store.countedOnDisk(); err != nil {
		return fmt.Errorf("begin %s anew: %w", l.part, err)
	}
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	l.mu.Lock()
	err := l.refusalLocked("restart", true)
	l.mu.Unlock()
	if err != nil {
		return err
	}
	ref, err := l.replaceSnapshot(at, producers)
	if err == nil {
		err = l.syncHome() // what the entry names is durable before it
	}
	if err != nil {
		if !passes(err) && !vfs.IsHarmed(err) {
			l.store.fail(err)
		}
		return fmt.Errorf("keep the producers of %s: %w", l.part, err)
	}

	w := &posWaiter{waiter: make(waiter, 1)}
	l.mu.Lock()
	if err := l.bornLocked(); err != nil {
		l.mu.Unlock()
		return err
	}
	if err := l.store.journal.Append(journal.Entry{Type: entryRestart, Payload: encodeRestart(l.part, start, ref), Durable: w}); err != nil {
		l.mu.Unlock()
		return err
	}
	old := l.segs
	l.cutTailLocked(record.Position{Offset: -1})
	l.begin(start, ref)
	l.index, l.indexed = indexer{every: l.store.cfg.IndexBytes}, 0
	l.cuts++
	l.changes++
	l.mu.Unlock()

	if err := <-w.waiter; err != nil {
		return fmt.Errorf("begin %s anew: %w", l.part, err)
	}
	l.mu.Lock()
	l.applied = max(l.applied, w.end)
	l.mu.Unlock()
	if err := l.removeSegments(old); err != nil {
		l.store.fail(err)
		return err
	}
	l.dropSnapshots(nil)
	return nil
}

// Forget drops the producer state of a log that was begun with it and has not grown past
// it: an unclean election has made what the log holds all there is, and that state is of
// records which are lost. It does not wait for the disk: durable is called once when it is
// there, or nobody can say any more, and not where an error is returned. It is as quick as a
// journal.Waiter. Whatever is appended after it is durable after it.
func (l *Log) Forget(durable func(error)) error {
	queued, err := l.forget(durable)
	if err == nil && !queued {
		durable(nil)
	}
	return err
}

func (l *Log) forget(durable func(error)) (queued bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ahead <= l.next {
		return false, nil
	}
	if err := l.refusalLocked("forget", false); err != nil {
		return false, err
	}
	// As a cut of nothing that the log holds: that state lies behind it.
	cut := segmentCut{end: l.flushedPos(), base: uncut}
	if err := l.store.journal.Append(journal.Entry{Type: entryTruncate, Payload: encodeTruncate(l.part, l.nextPos(), cut), Durable: told(durable)}); err != nil {
		return false, err
	}
	l.ahead = 0
	l.cutSnaps()
	l.cuts++
	l.changes++
	return true, nil
}

// told is a function that waits for an entry of the journal.
type told func(error)

// Done is of journal.Waiter.
func (t told) Done(_ journal.Position, err error) { t(err) }

// begin makes the state that of a log which begins at a place, with a producer
// state. That comes from a leader, and is of what is committed.
func (s *state) begin(start record.Position, ref snapshotRef) {
	*s = state{start: start.Offset, startVoids: start.Voids, applied: s.applied, snaps: []snapshotRef{ref}, ahead: ref.at, committed: ref.at}
	s.setFlushed(start)
	s.setNext(start)
}

// replaceSnapshot is writeSnapshot, but for a state that need not be the one that
// this log had at the offset. Should the process die before an entry names it, the
// log has lost that one and falls back to an older one, or to its batches.
func (l *Log) replaceSnapshot(at ident.Offset, state []byte) (snapshotRef, error) {
	b := encodeSnapshot(l.part, at, state)
	ref := snapshotRef{at, uint32(len(b)), record.Checksum(b[12:])}
	if len(state) == 0 {
		ref = snapshotRef{at: at}
	}
	l.mu.Lock()
	have := false
	for _, r := range l.snaps {
		have = have || r == ref
	}
	l.mu.Unlock()
	if have || len(state) == 0 {
		return ref, nil
	}
	return ref, l.writeSnapshotFile(at, b)
}

// ProducersUpTo is the newest producer state that the log keeps of records below
// hw alone, and the offset it is as of: what a follower begins with. An empty state
// says that there was no producer.
func (l *Log) ProducersUpTo(hw ident.Offset) (at ident.Offset, state []byte, ok bool) {
	l.mu.Lock()
	refs, start, next := append([]snapshotRef(nil), l.snaps...), l.start, l.next
	l.mu.Unlock()
	for _, ref := range refs {
		if ref.at < start || ref.at > min(hw, next) {
			continue
		}
		if state, err := l.readSnapshot(ref); err == nil {
			return ref.at, state, true
		}
	}
	return 0, nil, false
}

// readSnapshot gives the state of a snapshot, never nil.
func (l *Log) readSnapshot(ref snapshotRef) ([]byte, error) {
	if ref.bytes == 0 {
		return []byte{}, nil
	}
	b, err := vfs.ReadFile(l.store.cfg.FS, l.path(ref.at, snapshotSuffix))
	if err != nil {
		return nil, err
	}
	state, err := decodeSnapshot(b, l.part, ref)
	return append([]byte{}, state...), err
}

func encodeRestart(p ident.Partition, start record.Position, ref snapshotRef) []byte {
	b := binary.LittleEndian.AppendUint64(appendPartition(nil, p), uint64(start.Offset))
	b = binary.LittleEndian.AppendUint32(b, uint32(start.Voids))
	return appendSnaps(b, []snapshotRef{ref})
}

func (d *decoder) restart() (start record.Position, ref snapshotRef) {
	start = record.Position{Offset: d.offset(), Voids: d.voids()}
	snaps := d.snaps()
	if d.end(); len(snaps) != 1 || snaps[0].at < start.Offset {
		d.bad = true
		return start, ref
	}
	return start, snaps[0]
}

// bornLocked queues the entry that begins a log, before anything else of it: the
// partition may have been taken out, and what is older than this entry stays dead.
func (l *Log) bornLocked() error {
	if !l.unborn {
		return nil
	}
	err := l.store.journal.Append(journal.Entry{Type: entryBegin, Payload: appendPartition(nil, l.part)})
	l.unborn = err != nil
	return err
}

package storage

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"tidewire/internal/ident"
	"tidewire/internal/vfs"
)

// clockJump is how far the clock may run from the monotonic one between two
// looks before its word is not taken at once.
const clockJump = time.Hour

// Retain drops whole segments that are older than the retention age or beyond
// its bytes, never anything at or above hw. Old means the timestamp of a
// segment's last batch, so an active segment that is wholly too old goes too.
// now is what the clock says; if it jumped by more than an hour since the last
// look, age waits for the next one. Reads below the new start are refused at
// once; whoever reads a dropped file finishes the read in hand.
func (l *Log) Retain(now time.Time, hw ident.Offset) error {
	steady := l.clockSteady(now)
	if _, ok := l.expired(now, hw, steady); !ok {
		return nil
	}
	at, producers, snapshotted := l.takeSnapshot() // before flushMu: its owner has locks of its own
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	if err := l.flushLocked(); err != nil && !passes(err) {
		return err
	}
	start, ok := l.expired(now, hw, steady)
	if !ok {
		return nil
	}
	l.mu.Lock()
	snaps := state{snaps: l.snaps}
	l.mu.Unlock()
	if snapshotted && at >= start {
		// What the dropped records said of producers must outlive them (their
		// repeats are still to be recognised).
		ref, err := l.writeSnapshot(at, producers)
		if vfs.IsNoSpace(err) {
			// On a full disk the indexes of what is about to go, which are
			// caches, make the room for what lets it go.
			l.dropIndexes(start)
			ref, err = l.writeSnapshot(at, producers)
		}
		if err != nil {
			return l.retainLater(err)
		}
		snaps.addSnap(ref)
	}
	// What the entry names is durable before it.
	if err := l.syncFiles(); err != nil {
		return l.retainLater(err)
	}
	l.store.keepWait.note(l.store.log, "retention", nil)
	payload := binary.LittleEndian.AppendUint64(appendPartition(nil, l.part), uint64(start))
	if err := l.store.appendEntry(context.Background(), entryLogStart, appendSnaps(payload, snaps.snaps)); err != nil {
		return fmt.Errorf("move the start of %s: %w", l.part, err)
	}
	l.mu.Lock()
	dropped := l.advance(start)
	l.snaps = snaps.snaps
	l.changes++
	if len(l.segs) == 0 {
		l.index, l.indexed = indexer{every: l.store.cfg.IndexBytes}, 0
	}
	l.mu.Unlock()
	for _, g := range dropped {
		// The next start removes what nothing names any more.
		if err := l.removeSegment(g.base); vfs.IsHarmed(err) {
			l.store.log.Error("a segment that was dropped stays", "file", l.path(g.base, segmentSuffix), "err", err)
		} else if err != nil {
			return fmt.Errorf("remove a segment of %s: %w", l.part, err)
		}
	}
	return nil
}

// retainLater says whether the producers cannot be kept for good: what passes, or
// what is this log's alone, only keeps its segments a while longer.
func (l *Log) retainLater(err error) error {
	switch {
	case passes(err):
		l.store.keepWait.note(l.store.log, "retention", err)
		return nil
	case vfs.IsHarmed(err):
		l.setDamage(&Damage{Offset: l.End(), File: l.dir, Reason: err.Error()})
		return nil
	}
	return fmt.Errorf("keep the producers of %s: %w", l.part, err)
}

// dropIndexes removes the indexes of sealed segments that lie below an offset.
// It needs flushMu.
func (l *Log) dropIndexes(below ident.Offset) {
	l.mu.Lock()
	var names []string
	for i := range max(0, len(l.segs)-1) {
		if l.segEnd(i) <= below {
			names = append(names, l.path(l.segs[i].base, indexSuffix))
		}
	}
	l.mu.Unlock()
	for _, name := range names {
		l.store.indexes.drop(name)
		if err := l.store.cfg.FS.Remove(name); ignoreMissing(err) != nil {
			l.store.log.Warn("an index could not be removed", "file", name, "err", err)
		}
	}
}

// clockSteady compares the clock's progress with the monotonic one's.
func (l *Log) clockSteady(now time.Time) bool {
	mono := time.Since(l.store.disk.began)
	l.mu.Lock()
	defer l.mu.Unlock()
	off := now.Round(0).Sub(l.lookWall) - (mono - l.lookMono)
	l.lookWall, l.lookMono = now.Round(0), mono
	if off.Abs() > clockJump {
		l.store.log.Warn("the clock jumped; retention by age waits for a second look", "partition", l.part.String(), "jump", off.String())
		return false
	}
	return true
}

// expired finds the new start, if segments can go.
func (l *Log) expired(now time.Time, hw ident.Offset, byAge bool) (start ident.Offset, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refusalLocked("retain", true) != nil {
		return 0, false // of a damaged log nothing is dropped
	}
	oldest := now.UnixMilli() - l.cfg.RetentionAge.Milliseconds()
	total := l.state.bytes() + l.tailBytes
	start = l.start
	for i := range l.segs {
		g, end := &l.segs[i], l.segEnd(i)
		old := byAge && l.cfg.RetentionAge > 0 && g.lastMs < oldest
		big := l.cfg.RetentionBytes > 0 && total-g.bytes >= l.cfg.RetentionBytes
		active := i == len(l.segs)-1
		if active && (!old || len(l.tail) > 0) {
			break // it rolls by size, so only its age can make it go
		}
		if !old && !big || end > hw {
			break
		}
		start, ok = end, true
		total -= g.bytes
	}
	return start, ok && start > l.start
}

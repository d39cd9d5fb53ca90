package storage

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/vfs"
)

// clockJump is how far the clock may run from the monotonic one between two
// looks before its word is not taken at once.
const clockJump = time.Hour

// Retain drops whole segments that are older than the retention age or beyond
// its bytes, never anything at or above hw, which is what is committed. Old means the
// timestamp of a segment's last batch, so an active segment that is wholly too old goes
// too. now is what the clock says; if it jumped by more than an hour since the last
// look, age waits for the next one. Reads below the new start are refused at
// once; whoever reads a dropped file finishes the read in hand.
//
// What dropped records said of producers outlives them, as of a place that is committed:
// the log may yet be cut back to there, and others begin with it. A producer state is as
// of the log's end, so it may have to wait until that is committed, and the segments
// behind it with it: the next call finds it so.
func (l *Log) Retain(now time.Time, hw ident.Offset) error {
	steady := l.clockSteady(now)
	l.noteCommitted(hw)
	wanted, _, ok := l.expired(now, hw, steady)
	if !ok {
		return nil
	}
	return l.drops(hw, wanted, func(limit ident.Offset) (ident.Offset, bool, bool) { return l.expired(now, limit, steady) })
}

// Purge drops whole segments that end at an offset or below it, whatever their age. It
// is Retain but for the choice of what goes: nothing at or above hw, and what dropped
// records said of producers outlives them.
func (l *Log) Purge(below, hw ident.Offset) error {
	l.noteCommitted(hw)
	wanted, _, ok := l.purged(min(below, hw))
	if !ok {
		return nil
	}
	return l.drops(hw, wanted, func(limit ident.Offset) (ident.Offset, bool, bool) { return l.purged(min(below, limit)) })
}

// SetStart moves the start to where the leader has it, and drops whole segments
// below: only a leader decides on retention. It is not moved while it is not committed,
// which all below hw is, nor beyond what is durable, or beyond a producer state of what is
// committed (see Retain): whoever called says it again. A log that ends below is no case
// for it, but for Restart.
func (l *Log) SetStart(start, hw ident.Offset) error {
	l.mu.Lock()
	err, next, nothing := l.refusalLocked("start", true), l.next, start <= l.start
	l.mu.Unlock()
	switch {
	case err != nil || nothing:
		return err
	case start > next:
		return fmt.Errorf("move the start of %s to offset %d: it ends at %d", l.part, start, next)
	}
	l.noteCommitted(hw)
	if start > hw {
		return nil
	}
	return l.drops(hw, start, func(limit ident.Offset) (ident.Offset, bool, bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		to := min(start, limit, l.flushed)     // each a place between batches
		all := l.flushedPos() == record.At(to) // voids that stand at the start are kept
		return to, all, l.refusalLocked("start", true) == nil && to > l.start
	})
}

// purged is expired for segments that are to go because of where they end.
func (l *Log) purged(below ident.Offset) (start ident.Offset, all, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refusalLocked("purge", true) != nil {
		return 0, false, false
	}
	start = l.start
	for i := range l.segs {
		end, active := l.segEnd(i), i == len(l.segs)-1
		if end > below || active && l.busyLocked() {
			break
		}
		start, all, ok = end, active, true
	}
	return start, all, ok && start > l.start
}

// busyLocked says that the active segment is not to go with all others: it will have
// more, or voids stand at its end. They may be in no producer state, and one as of there is
// not replaced.
func (l *Log) busyLocked() bool { return len(l.tail) > 0 || l.flushedVoids > 0 }

// noteCommitted notes what is committed. It becomes durable with what comes next.
func (l *Log) noteCommitted(hw ident.Offset) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.committed = max(l.committed, min(hw, l.next))
}

// Committed is a lower bound of what is committed, as far as the log was told and has
// kept it. Unless the log begins at 0, or nobody gives it producer states, it has one as
// of a place between its start and there.
func (l *Log) Committed() ident.Offset {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.start, l.committed)
}

// drops moves the start up, which is wanted somewhere, to where find says: that is given
// the offset at which it may be at most.
func (l *Log) drops(hw, wanted ident.Offset, find func(limit ident.Offset) (start ident.Offset, all, ok bool)) error {
	s := l.takeSnapshot() // before flushMu: its owner has locks of its own
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	if err := l.flushLocked(); err != nil && !passes(err) {
		return err
	}
	limit, err := l.keepProducers(s, hw, wanted)
	if err != nil {
		return l.retainLater(err)
	}
	start, all, ok := find(limit)
	if !ok {
		return nil
	}
	return l.moveStart(start, all)
}

// keepProducers makes sure that the producers are kept as of a place that is committed,
// now or soon, and says which one that is: the start moves no further. wanted is where it
// is to go. It needs flushMu.
func (l *Log) keepProducers(s snapshotAt, hw, wanted ident.Offset) (limit ident.Offset, err error) {
	if !s.taken {
		return hw, nil // nobody has any
	}
	l.mu.Lock()
	fits := l.fitsLocked(s, l.start)
	awaited := len(l.snaps) > 0 && l.snaps[0].at > l.committed // it counts once it is committed
	counts := s.at <= l.committed
	l.mu.Unlock()
	if fits && (counts || !awaited) {
		ref, err := l.writeSnapshot(s.at, s.state)
		if vfs.IsNoSpace(err) {
			// On a full disk the indexes of what is about to go, which are
			// caches, make the room for what lets it go.
			l.dropIndexes(wanted)
			ref, err = l.writeSnapshot(s.at, s.state)
		}
		if err != nil {
			return 0, err
		}
		l.mu.Lock()
		l.addSnaps(ref)
		l.changes++
		l.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.snaps {
		if r.at <= l.committed {
			return min(hw, r.at), nil
		}
	}
	return l.start, nil // not yet
}

// moveStart keeps the new start and then drops segments: all, or those that end
// there or below. It needs flushMu.
func (l *Log) moveStart(start ident.Offset, all bool) error {
	to, err := l.startAt(start, all)
	if err != nil {
		return l.retainLater(err)
	}
	// What the entry names is durable before it.
	if err := l.syncHome(); err != nil {
		return l.retainLater(err)
	}
	l.mu.Lock()
	after := state{start: to.Offset, snaps: l.snaps, committed: l.committed}
	l.mu.Unlock()
	after.addSnaps()
	l.store.keepWait.note(l.store.log, "retention", nil)
	if err := l.store.appendEntry(context.Background(), entryLogStart, encodeStart(l.part, to, after.snaps, after.committed)); err != nil {
		return fmt.Errorf("move the start of %s: %w", l.part, err)
	}
	l.mu.Lock()
	dropped := l.advance(to)
	l.snaps = after.snaps
	l.changes++
	if len(l.segs) == 0 {
		l.index, l.indexed = indexer{every: l.store.cfg.IndexBytes}, 0
	}
	l.mu.Unlock()
	return l.removeSegments(dropped)
}

// removeSegments removes the files of segments that are no part of the log any
// more. It needs flushMu.
func (l *Log) removeSegments(dropped []segment) error {
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

// startAt is the position that the log begins at once every segment that ends at
// an offset or below it is dropped: the last one only with all of them. It needs
// flushMu.
func (l *Log) startAt(start ident.Offset, all bool) (record.Position, error) {
	l.mu.Lock()
	now := l.state
	l.mu.Unlock()
	if all {
		return now.flushedPos(), nil
	}
	n := 0
	for n+1 < len(now.segs) && now.segEnd(n) <= start {
		n++
	}
	if n == 0 || now.segEnd(n-1) < start {
		return record.At(start), nil
	}
	// Only an older program let a segment end with voids that stand at its end.
	now.segs, now.flushed = now.segs[:n:n], start
	w := &segmentWalk{fsys: l.store.cfg.FS, dir: l.dir, part: l.part, state: &now}
	voids, err := w.voidsAt(start, math.MaxUint32)
	return record.Position{Offset: start, Voids: voids}, err
}

// retainLater says whether the producers cannot be kept for good: what passes, or
// what is this log's alone, only keeps its segments a while longer.
func (l *Log) retainLater(err error) error {
	var bad *badBatch
	switch {
	case passes(err):
		l.store.keepWait.note(l.store.log, "retention", err)
		return nil
	case errors.As(err, &bad) && bad.content():
		l.setDamage(&Damage{Offset: bad.offset, File: l.dir, Pos: bad.pos, Reason: bad.Error()})
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

// expired finds the new start, if segments can go, and whether all of them can.
func (l *Log) expired(now time.Time, hw ident.Offset, byAge bool) (start ident.Offset, all, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refusalLocked("retain", true) != nil {
		return 0, false, false // of a damaged log nothing is dropped
	}
	oldest := now.UnixMilli() - l.cfg.RetentionAge.Milliseconds()
	total := l.state.bytes() + l.tailBytes
	start = l.start
	for i := range l.segs {
		g, end := &l.segs[i], l.segEnd(i)
		old := byAge && l.cfg.RetentionAge > 0 && g.lastMs < oldest
		big := l.cfg.RetentionBytes > 0 && total-g.bytes >= l.cfg.RetentionBytes
		active := i == len(l.segs)-1
		if active && (!old || l.busyLocked()) {
			break // it rolls by size, so only its age can make it go
		}
		if !old && !big || end > hw {
			break
		}
		start, all, ok = end, active, true
		total -= g.bytes
	}
	return start, all, ok && start > l.start
}

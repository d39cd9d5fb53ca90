package storage

import (
	"fmt"
	"math"
	"slices"

	"tidewire/broker/journal"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/vfs"
)

// segmentCut says where a truncation cuts a log's segments. It stands in the
// journal entry, so that replay does not need files that may be gone by then.
type segmentCut struct {
	end    record.Position // of what is left
	base   ident.Offset    // of the segment that is cut
	pos    int64           // its bytes that are left
	lastMs int64
	epoch  ident.Epoch // of the last batch that is left; 0: the epochs known tell
}

// uncut is the base of a cut that leaves the segments alone.
const uncut = ident.Offset(math.MaxInt64)

// planCut finds out where to cut: behind the last batch that ends at or before
// to. A position inside a batch cuts the whole batch.
func (s *state) planCut(fsys vfs.FS, dir string, p ident.Partition, to record.Position) (segmentCut, error) {
	w := segmentWalk{fsys: fsys, dir: dir, part: p, state: s}
	for {
		c := segmentCut{end: s.startPos()}
		err := w.from(to.Offset, func(at record.Position, g segment, pos int64, h record.Header) (bool, error) {
			c.end, c.base, c.pos = at, g.base, pos
			if to.Before(at.After(h)) {
				return false, nil
			}
			// Should it be the last one of all:
			c.end, c.pos, c.lastMs, c.epoch = at.After(h), pos+int64(h.Length), h.Timestamp, h.Epoch
			return true, nil
		})
		nothing := len(s.segs) == 0 || c.base == s.segs[0].base && c.pos == 0
		if w.whole || err != nil && !w.misled(err) || err == nil && (nothing || c.epoch != 0 && c.end.Offset == to.Offset) {
			return c, err
		}
		w.whole = true // it may have begun at the very batch that goes, and that has others before it
	}
}

// cutSegments takes everything behind the cut out of the description. It may be
// played on an older one, whose segments did not get so far. Bytes decide, for
// batches of voids may lie on both sides of one offset.
func (s *state) cutSegments(c segmentCut) {
	if c.base == uncut {
		return
	}
	segs := slices.Clone(s.segs)
	for n := len(segs); n > 0 && (segs[n-1].base > c.base || segs[n-1].base == c.base && c.pos == 0); n-- {
		segs = segs[:n-1]
	}
	if n := len(segs); n > 0 && segs[n-1].base == c.base && segs[n-1].bytes > c.pos {
		segs[n-1].bytes, segs[n-1].lastMs = c.pos, c.lastMs
	}
	s.segs = segs
	s.setFlushed(record.Least(s.flushedPos(), c.end))
}

// TruncateTo cuts everything behind a position; one inside a batch cuts the whole
// batch. When it returns the cut is durable. Batches that are cut before they were
// durable still hear of their journal entry.
func (l *Log) TruncateTo(to record.Position) error {
	if err := l.store.countedOnDisk(); err != nil {
		return fmt.Errorf("truncate %s: %w", l.part, err)
	}
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	l.persistIndex() // so that the file alone tells the index

	w := &posWaiter{waiter: make(waiter, 1)}
	l.mu.Lock()
	err := l.refusalLocked("truncate", false)
	switch {
	case err != nil:
	case to.Before(l.startPos()):
		err = fmt.Errorf("truncate %s at %s: the log starts at %s", l.part, at(to), at(l.startPos()))
	case !to.Before(l.nextPos()):
		l.mu.Unlock()
		return nil
	}
	// Only this call, holding flushMu, changes segments.
	now := state{start: l.start, startVoids: l.startVoids, flushed: l.flushed, flushedVoids: l.flushedVoids, segs: l.segs}
	forgotten := len(l.epochs) > 0 && !l.epochs[0].at.Before(to) // the history does not go back so far
	l.mu.Unlock()
	if err != nil {
		return err
	}
	// Read where to cut before anything changes.
	cut, inSegments := segmentCut{end: now.flushedPos(), base: uncut}, to.Before(now.flushedPos())
	if inSegments || forgotten {
		if cut, err = now.planCut(l.store.cfg.FS, l.dir, l.part, to); err != nil {
			return fmt.Errorf("truncate %s at %s: %w", l.part, at(to), err)
		}
	}

	// Open from here on, so that nothing is lacking once the cut is durable.
	if now.cutSegments(cut); inSegments && len(now.segs) > 0 {
		f, err := l.store.files.acquire(l.path(now.segs[len(now.segs)-1].base, segmentSuffix))
		if err != nil {
			return fmt.Errorf("truncate %s at %s: %w", l.part, at(to), err)
		}
		defer l.store.files.release(f)
	}

	l.mu.Lock()
	if err := l.store.journal.Append(journal.Entry{Type: entryTruncate, Payload: encodeTruncate(l.part, to, cut), Durable: w}); err != nil {
		l.mu.Unlock()
		return err
	}
	old := l.segs
	l.cutTailLocked(to)
	l.cutSegments(cut)
	l.settle(cut, lastOf(l.tail))
	l.cuts++
	l.changes++
	l.mu.Unlock()

	if err := <-w.waiter; err != nil {
		return fmt.Errorf("truncate %s: %w", l.part, err)
	}
	l.mu.Lock()
	l.applied = max(l.applied, w.end)
	segs := l.segs
	l.mu.Unlock()
	if !inSegments {
		return nil
	}
	if err := l.cutFiles(old, segs); err != nil {
		if vfs.IsHarmed(err) {
			l.setDamage(&Damage{Offset: cut.end.Offset, File: l.dir, Reason: "the segments cannot be cut: " + why(err)})
		} else {
			l.store.fail(err)
		}
		return fmt.Errorf("truncate %s: %w", l.part, err)
	}
	return nil
}

// at names a position as a person reads it.
func at(p record.Position) string {
	if p.Voids == 0 {
		return fmt.Sprintf("offset %d", p.Offset)
	}
	return fmt.Sprintf("offset %d behind %d batches of voids", p.Offset, p.Voids)
}

// cutTailLocked takes batches off the end of the tail.
func (l *Log) cutTailLocked(to record.Position) {
	n := len(l.tail)
	for ; n > 0 && to.Before(l.tail[n-1].after()); n-- {
		it := l.tail[n-1]
		it.cut = true
		l.tailBytes -= int64(len(it.batch))
		if n <= l.durableTail {
			l.durableTail--
			l.readyBytes -= int64(len(it.batch))
		}
		l.store.unflushed.Add(-int64(len(it.batch)))
	}
	l.tail = slices.Clone(l.tail[:n])
}

// cutFiles makes the files what the state says after a truncation.
func (l *Log) cutFiles(old, segs []segment) error {
	for _, g := range old {
		if !slices.ContainsFunc(segs, func(k segment) bool { return k.base == g.base }) {
			if err := l.removeSegment(g.base); err != nil {
				return err
			}
		}
	}
	l.indexed = 0
	ix := indexer{every: l.store.cfg.IndexBytes}
	if n := len(segs); n > 0 {
		g := segs[n-1]
		f, err := l.store.files.acquire(l.path(g.base, segmentSuffix))
		if err != nil {
			return err
		}
		err = f.Truncate(g.bytes)
		f.dirty.Store(true)
		if err == nil {
			ix, err = l.indexOf(f, g)
		}
		l.store.files.release(f)
		if err != nil {
			return err
		}
		l.unsynced.segment(g.base)
	}
	if n := len(segs); n > 0 {
		if err := l.removeIndex(segs[n-1].base); err != nil { // some of its entries are of what was cut
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.index = ix
	return nil
}

// indexOf makes the index of a segment that was cut: what its file says of what is
// left, and the rest from the segment.
func (l *Log) indexOf(f vfs.File, g segment) (indexer, error) {
	ix := indexer{every: l.store.cfg.IndexBytes}
	if b, err := vfs.ReadFile(l.store.cfg.FS, l.path(g.base, indexSuffix)); err == nil {
		ix.entries = decodeIndex(b, indexSeed(l.part, g.base), g.base, g.bytes)
	}
	if n := len(ix.entries); n > 0 {
		ix.last, ix.any = ix.entries[n-1], true
		if _, err := verifySegment(f, l.part, &ix, ix.last, g.bytes); err == nil {
			return ix, nil
		}
		ix = indexer{every: ix.every} // it may be what is wrong
	}
	_, err := verifySegment(f, l.part, &ix, indexEntry{offset: g.base}, g.bytes)
	return ix, err
}

// removeSegment unlinks a segment that the durable state does not name any
// more. Whoever reads it finishes; the next checkpoint makes it durable.
func (l *Log) removeSegment(base ident.Offset) error {
	name := l.path(base, segmentSuffix)
	if err := ignoreMissing(l.store.cfg.FS.Remove(name)); err != nil {
		return err
	}
	// After the name is gone: a reader that opened it just before must not leave
	// its handle to whoever makes a file of this name again.
	l.store.files.forget(name)
	l.unsynced.forget(base)
	return l.removeIndex(base)
}

func (l *Log) removeIndex(base ident.Offset) error {
	name := l.path(base, indexSuffix)
	l.store.indexes.drop(name)
	l.unsynced.folder()
	return ignoreMissing(l.store.cfg.FS.Remove(name))
}

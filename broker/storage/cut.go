package storage

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"

	"tidewire/broker/journal"
	"tidewire/internal/ident"
	"tidewire/internal/vfs"
)

// segmentCut says where a truncation cuts a log's segments. It stands in the
// journal entry, so that replay does not need files that may be gone by then.
type segmentCut struct {
	end    ident.Offset // of what is left
	base   ident.Offset // of the segment that is cut
	pos    int64        // its bytes that are left
	lastMs int64
}

// uncut is the base of a cut that leaves the segments alone.
const uncut = ident.Offset(math.MaxInt64)

// planCut finds out where to cut. An offset inside a batch cuts the whole batch.
func (s *state) planCut(fsys vfs.FS, dir string, p ident.Partition, to ident.Offset) (segmentCut, error) {
	i := s.find(to)
	if i >= 0 && s.segs[i].base == to {
		i-- // that one goes altogether
	}
	if i < 0 {
		return segmentCut{end: max(s.start, min(to, s.flushed))}, nil
	}
	g := s.segs[i]
	f, err := fsys.Open(filepath.Join(dir, offsetName(g.base, segmentSuffix)))
	if err != nil {
		return segmentCut{}, err
	}
	c, err := findCut(f, p, g, to)
	return c, errors.Join(err, f.Close())
}

// cutSegments takes everything behind the cut out of the description. It may be
// played on an older one, whose segments did not get so far. Bytes decide, for
// batches of voids may lie on both sides of one offset.
func (s *state) cutSegments(c segmentCut) {
	segs := slices.Clone(s.segs)
	for n := len(segs); n > 0 && (segs[n-1].base > c.base || segs[n-1].base == c.base && c.pos == 0); n-- {
		segs = segs[:n-1]
	}
	if n := len(segs); n > 0 && segs[n-1].base == c.base && segs[n-1].bytes > c.pos {
		segs[n-1].bytes, segs[n-1].lastMs = c.pos, c.lastMs
	}
	s.segs, s.flushed = segs, min(s.flushed, c.end)
}

// findCut walks a segment to the batch that holds an offset, or would.
func findCut(f vfs.File, p ident.Partition, g segment, to ident.Offset) (segmentCut, error) {
	w := &walker{f: f, part: p, end: g.bytes, next: g.base}
	c := segmentCut{base: g.base, lastMs: g.firstMs}
	for {
		c.pos, c.end = w.pos, w.next
		_, h, err := w.step()
		if errors.Is(err, io.EOF) || err == nil && (h.Next() > to || h.Base >= to) {
			return c, nil
		}
		if err != nil {
			return c, err
		}
		c.lastMs = h.Timestamp
	}
}

// Truncate cuts the log at an offset that begins a batch; one inside a batch
// cuts the whole batch. When it returns the cut is durable. Batches that are
// cut before they were durable still hear of their journal entry.
func (l *Log) Truncate(to ident.Offset) error {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	l.persistIndex() // so that the file alone tells the index

	w := &posWaiter{waiter: make(waiter, 1)}
	l.mu.Lock()
	err := l.refusalLocked("truncate", false)
	switch {
	case err != nil:
	case to < l.start:
		err = fmt.Errorf("truncate %s at offset %d: the log starts at %d", l.part, to, l.start)
	case to >= l.next:
		l.mu.Unlock()
		return nil
	}
	l.mu.Unlock()
	if err != nil {
		return err
	}
	// Read where to cut before anything changes. Only this call, holding
	// flushMu, changes segments.
	l.mu.Lock()
	now := state{start: l.start, flushed: l.flushed, segs: l.segs}
	l.mu.Unlock()
	cut, inSegments := segmentCut{end: now.flushed, base: uncut}, to < now.flushed
	if inSegments {
		if cut, err = now.planCut(l.store.cfg.FS, l.dir, l.part, to); err != nil {
			return fmt.Errorf("truncate %s at offset %d: %w", l.part, to, err)
		}
	}

	// Open from here on, so that nothing is lacking once the cut is durable.
	if now.cutSegments(cut); inSegments && len(now.segs) > 0 {
		f, err := l.store.files.acquire(l.path(now.segs[len(now.segs)-1].base, segmentSuffix))
		if err != nil {
			return fmt.Errorf("truncate %s at offset %d: %w", l.part, to, err)
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
	l.settle(to, lastOf(l.tail))
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
			l.setDamage(&Damage{Offset: cut.end, File: l.dir, Reason: "the segments cannot be cut: " + why(err)})
		} else {
			l.store.fail(err)
		}
		return fmt.Errorf("truncate %s: %w", l.part, err)
	}
	return nil
}

// cutTailLocked takes batches off the end of the tail.
func (l *Log) cutTailLocked(to ident.Offset) {
	n := len(l.tail)
	for ; n > 0 && (l.tail[n-1].head.Base >= to || l.tail[n-1].head.Next() > to); n-- {
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
			_, err = verifySegment(f, l.part, &ix, indexEntry{offset: g.base}, g.bytes)
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

package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"tidewire/broker/journal"
	"tidewire/internal/ident"
	"tidewire/internal/vfs"
)

// cutSegments takes everything from an offset on out of a log's segments, in
// the description alone. An offset inside a batch cuts the whole batch.
func (s *state) cutSegments(fsys vfs.FS, dir string, p ident.Partition, to ident.Offset) error {
	segs := slices.Clone(s.segs)
	for len(segs) > 0 && segs[len(segs)-1].base >= to {
		segs = segs[:len(segs)-1]
	}
	s.segs, s.flushed = segs, max(s.start, min(to, s.flushed))
	if len(segs) == 0 {
		return nil
	}
	g := &segs[len(segs)-1]
	f, err := fsys.Open(filepath.Join(dir, offsetName(g.base, segmentSuffix)))
	if err != nil {
		return err
	}
	pos, lastMs, end, err := findCut(f, p, *g, to)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	g.bytes, g.lastMs, s.flushed = pos, lastMs, end
	return nil
}

// findCut walks a segment to the batch that holds an offset, or would.
func findCut(f vfs.File, p ident.Partition, g segment, to ident.Offset) (pos, lastMs int64, end ident.Offset, err error) {
	w := &walker{f: f, part: p, end: g.bytes, next: g.base}
	lastMs = g.firstMs
	for {
		pos, end = w.pos, w.next
		_, h, err := w.step()
		if errors.Is(err, io.EOF) || err == nil && (h.Next() > to || h.Base >= to) {
			return pos, lastMs, end, nil
		}
		if err != nil {
			return 0, 0, 0, err
		}
		lastMs = h.Timestamp
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
	cut := state{}
	l.mu.Lock()
	cut.start, cut.flushed, cut.segs = l.start, l.flushed, slices.Clone(l.segs)
	l.mu.Unlock()
	if to < cut.flushed {
		if err := cut.cutSegments(l.store.cfg.FS, l.dir, l.part, to); err != nil {
			return fmt.Errorf("truncate %s at offset %d: %w", l.part, to, err)
		}
	}
	payload := binary.LittleEndian.AppendUint64(appendPartition(nil, l.part), uint64(to))

	l.mu.Lock()
	if err := l.store.journal.Append(journal.Entry{Type: entryTruncate, Payload: payload, Durable: w}); err != nil {
		l.mu.Unlock()
		return err
	}
	old := l.segs
	inSegments := to < l.flushed
	l.cutTailLocked(to)
	if inSegments {
		l.segs, l.flushed = cut.segs, cut.flushed
	}
	l.settle(to, lastOf(l.tail))
	l.cuts++
	l.changed = true
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
		l.store.fail(err)
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
		if !slices.Contains(l.unsynced, g.base) {
			l.unsynced = append(l.unsynced, g.base)
		}
	}
	if n := len(segs); n > 0 {
		l.store.indexes.drop(l.path(segs[n-1].base, indexSuffix))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.index = ix
	return nil
}

// removeSegment unlinks a segment that the durable state does not name any
// more. Whoever reads it finishes; the next checkpoint makes it durable.
func (l *Log) removeSegment(base ident.Offset) error {
	l.store.indexes.drop(l.path(base, indexSuffix))
	for _, suffix := range []string{segmentSuffix, indexSuffix} {
		name := l.path(base, suffix)
		l.store.files.forget(name)
		if err := l.store.cfg.FS.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	l.dirUnsynced = true
	if i := slices.Index(l.unsynced, base); i >= 0 {
		l.unsynced = slices.Delete(l.unsynced, i, i+1)
	}
	return nil
}

package storage

import (
	"errors"
	"io"
	"slices"

	"tidewire/internal/ident"
	"tidewire/internal/vfs"
)

// lookup finds the place in a segment to begin at: the entry that pick chooses
// among all of the segment's index, or the segment's beginning.
func (l *Log) lookup(v view, pick func([]indexEntry) (indexEntry, bool)) (indexEntry, error) {
	if e, ok := pick(v.fresh); ok {
		return e, nil
	}
	entries, err := l.loadIndex(v)
	if err != nil {
		return indexEntry{}, err
	}
	if e, ok := pick(entries); ok && e.pos < v.seg.bytes {
		return e, nil
	}
	return indexEntry{offset: v.seg.base}, nil
}

// staleDistance is how much of a segment's end may be without an entry before
// the index is made anew, in index distances.
const staleDistance = 8

// loadIndex reads a segment's index file, or makes the index from the segment.
func (l *Log) loadIndex(v view) ([]indexEntry, error) {
	name := l.path(v.seg.base, indexSuffix)
	if entries, ok := l.store.indexes.get(name); ok {
		return entries, nil
	}
	seed := indexSeed(l.part, v.seg.base)
	var entries []indexEntry
	if b, err := vfs.ReadFile(l.store.cfg.FS, name); err == nil {
		entries = decodeIndex(b, seed, v.seg.base, v.seg.bytes)
	} else if vfs.IsNoFiles(err) {
		return nil, err // to read all of the segment instead would not be kind
	}
	covered := v.seg.bytes
	if len(v.fresh) > 0 {
		covered = v.fresh[0].pos
	}
	ix := &indexer{every: l.store.cfg.IndexBytes}
	if n := len(entries); n > 0 {
		ix.last, ix.any = entries[n-1], true
	}
	if !ix.any || covered-ix.last.pos > staleDistance*l.store.cfg.IndexBytes {
		f, err := l.store.files.acquire(l.path(v.seg.base, segmentSuffix))
		if err != nil {
			return nil, err
		}
		at := indexEntry{offset: v.seg.base}
		if ix.any {
			at = ix.last
		}
		_, err = verifySegment(f, l.part, ix, at, covered)
		l.store.files.release(f)
		var bad *badBatch
		if err != nil && !errors.As(err, &bad) {
			return nil, err
		}
		entries = append(entries, ix.entries...) // up to the damage, which the read itself meets
		if len(v.fresh) == 0 && v.end < v.next && l.store.readOnly == nil {
			l.saveIndex(v.seg.base, entries)
		}
	}
	l.store.indexes.put(name, entries)
	return entries, nil
}

// reindex makes a segment's index anew, and says whether the segment is right.
func (l *Log) reindex(v view) (right bool, err error) {
	f, err := l.store.files.acquire(l.path(v.seg.base, segmentSuffix))
	if err != nil {
		return false, err
	}
	ix := &indexer{every: l.store.cfg.IndexBytes}
	_, err = verifySegment(f, l.part, ix, indexEntry{offset: v.seg.base}, v.seg.bytes)
	l.store.files.release(f)
	if err != nil {
		return false, err
	}
	name := l.path(v.seg.base, indexSuffix)
	if had, ok := l.store.indexes.get(name); ok && slices.Equal(had, ix.entries) {
		return false, &badBatch{0, v.seg.base, errors.New("what is read changes from one time to the next")}
	}
	l.store.indexes.put(name, ix.entries)
	return true, nil
}

// saveIndex writes the whole index of a sealed segment again. It is a cache:
// if that fails, the next start makes it anew.
func (l *Log) saveIndex(base ident.Offset, entries []indexEntry) {
	if err := writeIndex(l.store.cfg.FS, l.path(base, indexSuffix), indexSeed(l.part, base), 0, entries); err != nil {
		l.store.log.Warn("an index could not be written", "partition", l.part.String(), "err", err)
	}
}

// OffsetAt is the first offset whose timestamp is at least ms; the end of the
// log if there is none.
func (l *Log) OffsetAt(ms int64) (ident.Offset, error) {
	for {
		v, ok := l.viewAt(ms)
		if !ok {
			return v.next, nil
		}
		if v.seg == nil {
			for _, it := range v.tail {
				if it.head.Timestamp >= ms && it.head.Span > 0 {
					return it.head.Base, nil
				}
			}
			return v.next, nil
		}
		o, err := l.offsetInSegment(v, ms)
		if err == nil {
			return max(o, l.Start()), nil
		}
		if err := l.explain(v, err); err != nil {
			return 0, err
		}
	}
}

// viewAt finds the first segment whose last batch is not older than ms.
func (l *Log) viewAt(ms int64) (view, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := view{next: l.next, limit: l.next, cuts: l.cuts}
	if l.next == l.start || l.lastMs < ms {
		return v, false
	}
	for i := range l.segs {
		if l.segs[i].lastMs >= ms {
			seg := l.segs[i]
			v.seg, v.end = &seg, l.segEnd(i)
			if i == len(l.segs)-1 {
				v.fresh = l.index.entries
			}
			return v, true
		}
	}
	v.tail = l.tail
	return v, true
}

// offsetInSegment reads forward from the last entry that is older than ms.
// Batches of voids take no offset: the next one then is the answer.
func (l *Log) offsetInSegment(v view, ms int64) (ident.Offset, error) {
	at, err := l.lookup(v, func(entries []indexEntry) (indexEntry, bool) { return before(entries, ms) })
	if err != nil {
		return 0, err
	}
	f, err := l.store.files.acquire(l.path(v.seg.base, segmentSuffix))
	if err != nil {
		return 0, err
	}
	defer l.store.files.release(f)
	w := &walker{f: f, part: l.part, pos: at.pos, end: v.seg.bytes, next: at.offset}
	for {
		_, h, err := w.step()
		if errors.Is(err, io.EOF) {
			return w.next, nil
		}
		if err != nil {
			return 0, err
		}
		if h.Timestamp >= ms {
			return h.Base, nil
		}
	}
}

package storage

import (
	"errors"
	"io"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/vfs"
)

// Fold visits, in order, every batch that holds an offset from from on, and
// every batch of voids whose place is from or later. What it visits is the log
// at the moment of the call; no lock is held during a visit. Voids that stand
// at from itself may have been visited by a fold that ended there.
func (l *Log) Fold(from ident.Offset, visit func(record.Batch) error) error {
	l.mu.Lock()
	if from < l.start {
		err := l.fault(fault.OffsetExpired, "fold", errExpired).With("earliest", int64(l.start)).With("end", int64(l.next))
		l.mu.Unlock()
		return err
	}
	segs, flushed, tail, damage, cuts := l.segs, l.flushed, l.tail, l.damage, l.cuts
	var views []view
	for i := range segs {
		if l.segEnd(i) < from { // one that ends at from may end with voids that stand there
			continue
		}
		seg := segs[i]
		views = append(views, view{seg: &seg, end: l.segEnd(i), next: flushed, limit: flushed, cuts: cuts})
	}
	l.mu.Unlock()
	for _, v := range views {
		stop, err := l.foldSegment(v, from, visit)
		for vfs.IsNoFiles(err) && l.store.waits() { // nothing was opened, so nothing was visited
			stop, err = l.foldSegment(v, from, visit)
		}
		var bad *badBatch
		switch {
		case stop != nil:
			return stop
		case err == nil:
			continue
		case errors.As(err, &bad) && damage != nil && bad.offset >= damage.Offset:
			return l.damaged("fold", damage)
		}
		if err := l.explain(v, err); err != nil {
			return err
		}
		return l.fault(fault.OffsetExpired, "fold", errExpired)
	}
	for _, it := range tail {
		if it.head.Next() > from || it.head.Base >= from {
			if err := visit(it.batch); err != nil {
				return err
			}
		}
	}
	return nil
}

// foldSegment visits one segment. stop is what a visit returned, err what reading did.
func (l *Log) foldSegment(v view, from ident.Offset, visit func(record.Batch) error) (stop, err error) {
	at := indexEntry{offset: v.seg.base}
	if from > v.seg.base {
		// Strictly before: voids that stand at from may precede an entry for it.
		if at, err = l.lookup(v, func(entries []indexEntry) (indexEntry, bool) { return floor(entries, from-1) }); err != nil {
			return nil, err
		}
	}
	f, err := l.store.files.acquire(l.path(v.seg.base, segmentSuffix))
	if err != nil {
		return nil, err
	}
	defer l.store.files.release(f)
	w := &walker{f: f, part: l.part, pos: at.pos, end: v.seg.bytes, next: at.offset}
	for {
		b, h, err := w.step()
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if h.Next() > from || h.Base >= from {
			if err := visit(b); err != nil {
				return err, nil
			}
		}
	}
}

package storage

import (
	"errors"
	"io"
	"path/filepath"

	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/vfs"
)

// segmentWalk goes through segments as a description tells them, from file to
// file, and counts the voids at each offset.
type segmentWalk struct {
	fsys  vfs.FS
	dir   string
	part  ident.Partition
	state *state
	whole bool // from the log's beginning; else an index may spare most of it
}

// from visits all batches that stand at an offset, or hold it, and those behind
// them. Some before them are visited as well. at is exact from the first batch
// on that stands at the offset. The walk ends when a visit says so.
func (w *segmentWalk) from(o ident.Offset, visit func(at record.Position, g segment, pos int64, h record.Header) (on bool, err error)) error {
	s := w.state
	i := max(0, s.find(o))
	if w.whole {
		i = 0
	} else if i > 0 && s.segs[i].base == o {
		i-- // it may end with voids that stand at o
	}
	var at record.Position
	for n := i; n < len(s.segs); n++ {
		g := s.segs[n]
		begin := indexEntry{offset: g.base}
		if n == i && !w.whole && g.base < o {
			begin = w.before(g, o)
		}
		switch {
		case g.base == s.start && begin.pos == 0:
			at = s.startPos()
		case at.Offset != begin.offset:
			at = record.At(begin.offset)
		}
		on, err := w.segment(g, begin, &at, visit)
		if err != nil || !on {
			return err
		}
	}
	return nil
}

func (w *segmentWalk) segment(g segment, begin indexEntry, at *record.Position, visit func(record.Position, segment, int64, record.Header) (bool, error)) (on bool, err error) {
	f, err := w.fsys.Open(filepath.Join(w.dir, offsetName(g.base, segmentSuffix)))
	if err != nil {
		return false, err
	}
	walk := &walker{f: f, part: w.part, pos: begin.pos, end: g.bytes, next: begin.offset}
	for on = true; on && err == nil; {
		pos := walk.pos
		var h record.Header
		if _, h, err = walk.step(); err != nil {
			break
		}
		on, err = visit(*at, g, pos, h)
		*at = at.After(h)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return on, errors.Join(err, f.Close())
}

// before is the last place in a segment's index that lies before everything that
// stands at an offset; its beginning, where the index does not tell.
func (w *segmentWalk) before(g segment, o ident.Offset) indexEntry {
	b, err := vfs.ReadFile(w.fsys, filepath.Join(w.dir, offsetName(g.base, indexSuffix)))
	if err == nil {
		if e, ok := floor(decodeIndex(b, indexSeed(w.part, g.base), g.base, g.bytes), o-1); ok {
			return e
		}
	}
	return indexEntry{offset: g.base}
}

// voidsAt counts the batches of voids that stand at an offset in the segments and
// are of an epoch below one.
func (w segmentWalk) voidsAt(o ident.Offset, below ident.Epoch) (n int, err error) {
	err = w.from(o, func(at record.Position, _ segment, _ int64, h record.Header) (bool, error) {
		switch {
		case h.Base < o:
			return true, nil
		case h.Base > o || h.Span > 0 || h.Epoch >= below:
			return false, nil
		}
		n = at.Voids + 1
		return true, nil
	})
	if !w.whole && w.misled(err) {
		w.whole = true
		return w.voidsAt(o, below)
	}
	return n, err
}

// misled says whether an error may be one of the index, and not of the segments.
func (w *segmentWalk) misled(err error) bool {
	var bad *badBatch
	return errors.As(err, &bad) && bad.content()
}

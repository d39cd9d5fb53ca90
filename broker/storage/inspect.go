package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"slices"

	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/vfs"
)

// folder is what a partition's folder holds.
type folder struct {
	path     string
	segments map[ident.Offset]int64 // sizes by base
	indexes  map[ident.Offset]int64 // likewise
	others   []string
}

func readFolder(fsys vfs.FS, path string) (folder, error) {
	d := folder{path: path, segments: map[ident.Offset]int64{}, indexes: map[ident.Offset]int64{}}
	infos, err := fsys.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		d.path = ""
		return d, nil
	}
	if err != nil {
		return d, err
	}
	for _, info := range infos {
		if info.IsDir {
			d.others = append(d.others, info.Name) // whatever it is called
		} else if base, ok := parseOffsetName(info.Name, segmentSuffix); ok {
			d.segments[base] = info.Size
		} else if base, ok := parseOffsetName(info.Name, indexSuffix); ok {
			d.indexes[base] = info.Size
		} else {
			d.others = append(d.others, info.Name)
		}
	}
	return d, nil
}

// inspect holds a log's files against its description: segments that are
// missing or short are damage, the end of the active one is checked down to
// its last index entry, and what lies behind it may be proof of a loss.
func (l *foundLog) inspect(fsys vfs.FS, dir string, indexBytes int64) error {
	path := partitionDir(dir, l.part)
	files, err := readFolder(fsys, path)
	if vfs.IsHarmed(err) {
		l.damaged(&Damage{Offset: l.start, File: path, Reason: "the folder cannot be read: " + why(err)})
		l.files = folder{}
		return nil
	}
	if err != nil {
		return err
	}
	l.files = files
	for i := range l.segs {
		g := &l.segs[i]
		if size, ok := files.segments[g.base]; !ok || size < g.bytes {
			if err := l.probe(fsys, path, i, indexBytes); err != nil {
				return err
			}
			break
		}
	}
	if err := l.countVoids(fsys, path); err != nil {
		return err
	}
	return l.inspectEnd(fsys, path, indexBytes)
}

// countVoids finds out what an older format left open: how many batches of voids
// stand at the end of the segments, and where epochs begin among those.
func (l *foundLog) countVoids(fsys vfs.FS, path string) error {
	if !l.uncounted || l.damage != nil {
		return nil
	}
	w := &segmentWalk{fsys: fsys, dir: path, part: l.part, state: &l.state}
	var failed error
	count := func(o ident.Offset, below ident.Epoch) int {
		n, err := w.voidsAt(o, below)
		var bad *badBatch
		if err != nil && !errors.As(err, &bad) && !vfs.IsHarmed(err) && !errors.Is(err, fs.ErrNotExist) {
			failed = err
		}
		return n // whatever else is wrong there is damage, as the next steps find
	}
	missed := 0
	if len(l.segs) > 0 {
		missed = count(l.flushed, math.MaxUint32) - l.flushedVoids
	}
	shift := func(p *record.Position) {
		if p.Offset == l.flushed {
			p.Voids += missed
		}
	}
	for i := range l.epochs {
		if e := &l.epochs[i]; e.guessed {
			e.at.Voids = count(e.at.Offset, e.epoch)
		} else {
			shift(&e.at)
		}
	}
	for _, it := range l.tail {
		shift(&it.at)
	}
	next := l.nextPos()
	shift(&next)
	l.setNext(next)
	l.flushedVoids += missed
	return failed
}

// probe finds out how much of a missing or short segment is still right.
func (l *foundLog) probe(fsys vfs.FS, path string, i int, indexBytes int64) error {
	g := l.segs[i]
	name := filepath.Join(path, offsetName(g.base, segmentSuffix))
	f, err := fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		l.damaged(&Damage{Offset: g.base, File: name, Reason: "the file is missing"})
		return nil
	}
	if vfs.IsHarmed(err) {
		l.damaged(&Damage{Offset: g.base, File: name, Reason: "the segment cannot be read: " + why(err)})
		return nil
	}
	if err != nil {
		return err
	}
	_, err = verifySegment(f, l.part, &indexer{every: indexBytes}, indexEntry{offset: g.base}, g.bytes)
	var bad *badBatch
	if errors.As(err, &bad) {
		l.damaged(&Damage{bad.offset, name, bad.pos, bad.Error()})
		err = nil
	} else if vfs.IsHarmed(err) {
		l.damaged(&Damage{Offset: g.base, File: name, Reason: "the segment cannot be read: " + why(err)})
		err = nil
	}
	return errors.Join(err, f.Close())
}

func (l *foundLog) damaged(d *Damage) {
	if l.damage == nil || d.Offset < l.damage.Offset {
		l.damage = d
	}
}

// inspectEnd checks the end of the active segment and looks behind it.
func (l *foundLog) inspectEnd(fsys vfs.FS, path string, indexBytes int64) error {
	n := len(l.segs)
	if n == 0 {
		return l.salvage(fsys, path, nil, 0)
	}
	g := l.segs[n-1]
	name := filepath.Join(path, offsetName(g.base, segmentSuffix))
	f, err := fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // probed already
	}
	if vfs.IsHarmed(err) {
		l.damaged(&Damage{Offset: g.base, File: name, Reason: "the segment cannot be read: " + why(err)})
		return nil
	}
	if err != nil {
		return err
	}
	ix := indexer{every: indexBytes}
	at := indexEntry{offset: g.base}
	if last, count, ok := lastIndexEntry(fsys, filepath.Join(path, offsetName(g.base, indexSuffix)), indexSeed(l.part, g.base), g); ok {
		at, ix.last, ix.any, l.indexed = last, last, true, count
	}
	next, err := verifySegment(f, l.part, &ix, at, g.bytes)
	if err != nil && ix.any && at.pos > 0 {
		// The index may be what is wrong: ask the whole segment.
		ix, l.indexed = indexer{every: indexBytes}, 0
		next, err = verifySegment(f, l.part, &ix, indexEntry{offset: g.base}, g.bytes)
	}
	l.index, l.indexLast, l.indexAny = ix.entries, ix.last, ix.any
	var bad *badBatch
	switch {
	case vfs.IsHarmed(err):
		l.damaged(&Damage{Offset: g.base, File: name, Reason: "the segment cannot be read: " + why(err)})
		err = nil
	case errors.As(err, &bad):
		l.damaged(&Damage{bad.offset, name, bad.pos, bad.Error()})
		err = nil
	case err == nil && next != l.flushed:
		l.damaged(&Damage{min(next, l.flushed), name, g.bytes, fmt.Sprintf("the segment ends at offset %d, not %d", next, l.flushed)})
	case err == nil:
		err = l.salvage(fsys, path, f, g.bytes)
	}
	return errors.Join(err, f.Close())
}

// lastIndexEntry reads the end of an index file alone: checking all of it waits
// until somebody needs it.
func lastIndexEntry(fsys vfs.FS, name string, seed uint32, g segment) (e indexEntry, count int, ok bool) {
	f, err := fsys.Open(name)
	if err != nil {
		return e, 0, false
	}
	defer f.Close() //nolint:errcheck // opened for reading a cache
	size, err := f.Size()
	if err != nil || size < indexEntryBytes {
		return e, 0, false
	}
	count = int(size / indexEntryBytes)
	b := make([]byte, indexEntryBytes)
	if _, err := f.ReadAt(b, int64(count-1)*indexEntryBytes); err == nil {
		if e, ok := decodeEntry(b, seed, g.bytes); ok {
			return e, count, true
		}
	}
	// Entries beyond the state: fall back to those inside it.
	all, err := vfs.ReadAll(f)
	if err != nil {
		return e, 0, false
	}
	if es := decodeIndex(all, seed, g.base, g.bytes); len(es) > 0 {
		return es[len(es)-1], len(es), true
	}
	return e, 0, false
}

// salvage looks for batches behind the end of the segments. The first ones are
// the tail's, written but not yet checkpointed. One more that fits right behind
// the end of the log proves that the journal lost it: it was acknowledged.
func (l *foundLog) salvage(fsys vfs.FS, path string, active vfs.File, pos int64) error {
	if l.truncated || l.damage != nil || l.files.path == "" {
		return nil
	}
	next, k := l.flushed, 0
	epoch, ms := l.epoch, l.lastMs
	walk := func(f vfs.File, pos int64) error {
		size, err := f.Size()
		if err != nil {
			return err
		}
		w := &walker{f: f, part: l.part, pos: pos, end: size, next: next}
		for {
			b, h, err := w.step()
			var bad *badBatch
			if errors.Is(err, io.EOF) || errors.As(err, &bad) {
				return nil
			}
			if err != nil {
				return err
			}
			if k < len(l.tail) {
				if !bytes.Equal(b, l.tail[k].batch) {
					return errForeign
				}
				k++
			} else if h.Epoch < epoch || h.Timestamp < ms {
				return errForeign
			} else {
				l.salvaged = append(l.salvaged, bytes.Clone(b))
				epoch, ms = h.Epoch, h.Timestamp
			}
			next = h.Next()
		}
	}
	if active != nil {
		if err := walk(active, pos); err != nil {
			return ignoreForeign(err)
		}
	}
	for {
		// Rolled on: the next file is named by where the last one ended.
		base := next
		_, ok := l.files.segments[base]
		if !ok || slices.ContainsFunc(l.segs, func(g segment) bool { return g.base == base }) {
			return nil
		}
		name := filepath.Join(path, offsetName(base, segmentSuffix))
		f, err := fsys.Open(name)
		if vfs.IsHarmed(err) { // it may hold what the journal lost
			l.damaged(&Damage{Offset: base, File: name, Reason: "the segment cannot be read: " + why(err)})
			return nil
		}
		if err != nil {
			return err
		}
		before := len(l.salvaged)
		err = errors.Join(walk(f, 0), f.Close())
		if next == base && base == l.start && l.startVoids > 0 {
			// Voids alone: a segment of those that the start left behind.
			l.salvaged = l.salvaged[:before]
		}
		if err != nil || next == base {
			return ignoreForeign(err)
		}
	}
}

// errForeign says that bytes behind the end are not a continuation.
var errForeign = errors.New("not a continuation of the log")

func ignoreForeign(err error) error {
	if errors.Is(err, errForeign) {
		return nil
	}
	return err
}

package storage

import (
	"errors"
	"io"
	"io/fs"
	"sort"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/vfs"
)

// minReadBytes is read from a segment at least: the batch that is looked for
// lies up to an index distance behind the place the index gives.
const minReadBytes = 32 << 10

// Read gives whole batches back to back, the first one holding from, all of
// them beginning below limit, about maxBytes of them but at least one. There
// are none if from is the end of the log. Batches of voids are left out. Every
// byte was checked, or is in memory still; the result never changes.
func (l *Log) Read(from, limit ident.Offset, maxBytes int) ([]byte, error) {
	for {
		v, err := l.view(from)
		if err != nil || from >= min(limit, v.next) {
			return nil, err
		}
		if v.seg == nil {
			return readTail(v.tail, from, limit, maxBytes), nil
		}
		out, err := l.readSegment(v, extent{
			seek: from, limit: min(limit, v.limit), maxBytes: maxBytes,
			takes: func(h record.Header) (bool, error) { return h.Next() > from && h.Span > 0, nil },
		})
		if err == nil && out != nil {
			return out, nil
		}
		if err := l.explain(v, err); err != nil {
			return nil, err
		}
	}
}

// view is what a read needs to know, taken at one moment.
type view struct {
	next  ident.Offset
	tail  []*item      // if from lies in memory
	seg   *segment     // if it lies in a segment
	end   ident.Offset // of that segment
	fresh []indexEntry // index of the active segment that is not in its file
	limit ident.Offset // damage begins here, or the end
	cuts  int
}

func (l *Log) view(from ident.Offset) (view, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := view{next: l.next, limit: l.next, cuts: l.cuts}
	switch {
	case from < l.start:
		return v, l.fault(fault.OffsetExpired, "read", errExpired).With("earliest", int64(l.start)).With("end", int64(l.next))
	case l.damage != nil && from >= l.damage.Offset:
		return v, l.damaged("read", l.damage)
	case from > l.next:
		return v, l.fault(fault.OffsetNotFound, "read", errBeyond).With("end", int64(l.next))
	}
	if l.damage != nil {
		v.limit = l.damage.Offset
	}
	if from >= l.flushed {
		v.tail = l.tail
		return v, nil
	}
	i := l.find(from)
	if i < 0 {
		return v, l.fault(fault.Internal, "read", errors.New("no segment holds the offset"))
	}
	seg := l.segs[i]
	v.seg, v.end = &seg, l.segEnd(i)
	if i == len(l.segs)-1 {
		v.fresh = l.index.entries
	}
	return v, nil
}

var (
	errExpired = errors.New("retention deleted this offset")
	errBeyond  = errors.New("the log ends before this offset")
)

// readTail copies batches out of memory.
func readTail(tail []*item, from, limit ident.Offset, maxBytes int) []byte {
	i := sort.Search(len(tail), func(i int) bool { return tail[i].head.Next() > from })
	first, size, count := i, 0, 0
	for ; i < len(tail) && tail[i].head.Base < limit; i++ {
		if tail[i].head.Span == 0 {
			continue
		}
		if count > 0 && size+len(tail[i].batch) > maxBytes {
			break
		}
		size += len(tail[i].batch)
		count++
	}
	if count == 1 {
		for ; tail[first].head.Span == 0; first++ {
		}
		return tail[first].batch
	}
	out := make([]byte, 0, size)
	for ; first < i; first++ {
		if tail[first].head.Span > 0 {
			out = append(out, tail[first].batch...)
		}
	}
	return out
}

// extent says which batches of a segment a read is for: from where its index is
// asked for the place to begin at, those that takes says, of which none stands at
// or behind limit, and about maxBytes of them.
type extent struct {
	seek     ident.Offset
	takes    func(record.Header) (bool, error)
	limit    ident.Offset
	maxBytes int
}

// readSegment reads from one segment file. No bytes and no error say that the
// segment has nothing of what is asked.
func (l *Log) readSegment(v view, e extent) ([]byte, error) {
	at := indexEntry{offset: v.seg.base}
	if e.seek > v.seg.base {
		var err error
		if at, err = l.lookup(v, func(entries []indexEntry) (indexEntry, bool) { return floor(entries, e.seek) }); err != nil {
			return nil, err
		}
	}
	maxBytes := e.maxBytes
	f, err := l.store.files.acquire(l.path(v.seg.base, segmentSuffix))
	if err != nil {
		return nil, err
	}
	defer l.store.files.release(f)
	size := int64(min(max(maxBytes, 0), 4<<20)) + l.store.cfg.IndexBytes + minReadBytes
	r := &chunk{f: f, end: v.seg.bytes, pos: at.pos, size: size}

	var out []byte
	next := at.offset
	for r.pos < r.end && next < e.limit {
		b, h, err := r.batch(len(out) > 0)
		if err != nil || b == nil {
			if len(out) > 0 {
				break // what is there is good; the next read finds the rest, or the fault
			}
			return nil, &badBatch{r.pos, next, err}
		}
		takes := false
		if h.Base != next || h.Partition != l.part {
			err = errOutOfPlace
		} else if takes, err = e.takes(h); err != nil {
			return nil, err
		} else if takes {
			if len(out) > 0 && len(out)+len(b) > maxBytes {
				break
			}
			err = b.Verify()
		}
		if err != nil {
			if len(out) > 0 {
				break
			}
			return nil, &badBatch{r.pos, next, err}
		}
		next = h.Next()
		r.pos += int64(len(b))
		if takes {
			out = appendShared(out, b, r)
		}
	}
	if 2*len(out) < cap(out) && r.shared {
		out = append([]byte(nil), out...) // a small answer must not pin a large buffer
	}
	return out, nil
}

var errOutOfPlace = errors.New("another batch is in its place")

// chunk gives the batches of a part of a file, read at once.
type chunk struct {
	f        io.ReaderAt
	end      int64
	pos      int64 // of the next batch
	size     int64 // to read at once
	buf      []byte
	bufPos   int64
	cut      bool  // the file ended before the buffer was full
	shared   bool  // the answer is a part of buf
	sharedTo int64 // and ends there
}

// batch gives the batch at pos, without checking its sums. It gives nil where
// more would have to be read while part of an answer is at hand already.
func (r *chunk) batch(enough bool) (record.Batch, record.Header, error) {
	if r.buf == nil {
		if err := r.fill(r.size); err != nil {
			return nil, record.Header{}, err
		}
	}
	for {
		raw := r.buf[min(r.pos-r.bufPos, int64(len(r.buf))):]
		b, _, err := record.Cut(raw)
		if err == nil {
			return b, b.Header(), nil
		}
		if !errors.Is(err, record.ErrShort) {
			return nil, record.Header{}, err
		}
		if enough {
			return nil, record.Header{}, nil
		}
		need := r.size
		if h, err := record.ParseHeader(raw); err == nil {
			need = max(need, int64(h.Length))
		}
		if r.bufPos == r.pos && (r.cut || int64(len(r.buf)) >= min(need, r.end-r.pos)) {
			return nil, record.Header{}, record.ErrShort // all there is
		}
		if err := r.fill(need); err != nil {
			return nil, record.Header{}, err
		}
	}
}

func (r *chunk) fill(size int64) error {
	r.buf, r.bufPos = make([]byte, min(size, r.end-r.pos)), r.pos
	n, err := r.f.ReadAt(r.buf, r.pos)
	r.cut = n < len(r.buf)
	r.buf = r.buf[:n]
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// appendShared adds a batch to an answer, without copying as long as the answer
// is one piece of the buffer.
func appendShared(out []byte, b record.Batch, r *chunk) []byte {
	end := r.pos
	switch {
	case out == nil:
		r.shared, r.sharedTo = true, end
		i := end - int64(len(b)) - r.bufPos
		return r.buf[i : i+int64(len(b)) : len(r.buf)]
	case r.shared && r.sharedTo+int64(len(b)) == end:
		r.sharedTo = end
		return out[:len(out)+len(b)]
	}
	if r.shared {
		r.shared = false
		out = append(make([]byte, 0, 2*len(out)+len(b)), out...)
	}
	return append(out, b...)
}

// explain turns a failed read of a segment into what it means. Nil says: look
// again, the log has changed meanwhile.
func (l *Log) explain(v view, err error) error {
	l.mu.Lock()
	i := l.find(v.seg.base)
	same := !l.deleted && i >= 0 && l.segs[i].base == v.seg.base && l.cuts == v.cuts
	gone := l.deleted
	l.mu.Unlock()
	switch {
	case gone:
		return l.fault(fault.PartitionNotFound, "read", errors.New("the log was deleted"))
	case !same:
		return nil // retention or a truncation took the segment
	case errors.Is(err, errClosed):
		return l.fault(fault.LeaderUnavailable, "read", err)
	}
	d := &Damage{Offset: v.seg.base, File: l.path(v.seg.base, segmentSuffix)}
	var bad *badBatch
	if errors.As(err, &bad) && bad.content() {
		// The index is a cache, and it may be what is wrong: the segment tells.
		right, e := l.reindex(v)
		if right {
			return nil
		}
		err = e
	}
	switch {
	case err == nil:
		d.Reason = "the segment ends too early"
	case vfs.IsNoFiles(err):
		return l.fault(fault.LeaderUnavailable, "read", errors.New("the node has no open files left; ask again in a moment")).After(l.store.cfg.RetrySpace)
	case errors.As(err, &bad) && bad.content():
		d.Offset, d.Pos, d.Reason = bad.offset, bad.pos, bad.Error()
	case errors.Is(err, fs.ErrNotExist):
		d.Reason = "the file is missing"
	case vfs.IsHarmed(err):
		d.Reason = "the segment cannot be read: " + why(err)
	default:
		// An I/O error: the disk is failing. The process ends and what can be
		// read again is found at the next start.
		l.store.fail(err)
		return l.fault(fault.LeaderUnavailable, "read", err)
	}
	l.setDamage(d)
	return l.damaged("read", d)
}

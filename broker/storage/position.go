package storage

import (
	"errors"
	"fmt"
	"math"
	"sort"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
)

// ReadFrom gives whole batches back to back from a position on, those of voids as
// well, up to the end of the log, durable or not: what a replica gets. They are
// about maxBytes, but at least one; there are none at the end of the log. Every
// byte was checked, or is in memory still; the result never changes.
func (l *Log) ReadFrom(p record.Position, maxBytes int) ([]byte, error) {
	for {
		v, err := l.viewFrom(p)
		if err != nil || v.seg == nil && len(v.tail) == 0 {
			return nil, err
		}
		if v.seg == nil {
			return l.tailFrom(v.tail, p, maxBytes)
		}
		out, err := l.readPlaced(&v, p, maxBytes)
		if err == nil && out != nil {
			return out, nil
		}
		if errors.Is(err, errInside) {
			return nil, l.notHere(p, v.next)
		}
		if err := l.explain(v.view, err); err != nil {
			return nil, err
		}
	}
}

// placed is a view of a segment with the position of its first batch, if the
// segment stands at the offset that is read from, and the one after it.
type placed struct {
	view
	first record.Position
	then  *segment // stands at the offset as well
}

func (l *Log) viewFrom(p record.Position) (placed, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := placed{view: view{next: l.next, limit: math.MaxInt64, cuts: l.cuts}}
	switch {
	case p.Before(l.startPos()):
		return v, l.fault(fault.OffsetExpired, "read", errExpired).With("earliest", int64(l.start)).With("end", int64(l.next))
	case l.damage != nil && p.Offset >= l.damage.Offset:
		return v, l.damaged("read", l.damage)
	case l.nextPos().Before(p):
		return v, l.notHere(p, l.next)
	case !p.Before(l.flushedPos()):
		v.tail = l.tail
		return v, nil
	}
	if l.damage != nil {
		v.limit = l.damage.Offset
	}
	i := l.find(p.Offset)
	if i < 0 {
		return v, l.fault(fault.Internal, "read", errors.New("no segment holds the position"))
	}
	if l.segs[i].base == p.Offset && i > 0 {
		then := l.segs[i]
		v.then = &then
		i-- // an older program may have left voids of this offset at its end
	}
	seg := l.segs[i]
	v.seg, v.end, v.first = &seg, l.segEnd(i), record.At(seg.base)
	if seg.base == l.start {
		v.first = l.startPos()
	}
	if last := len(l.segs) - 1; i == last || v.then != nil && i+1 == last {
		v.fresh = l.index.entries
	}
	return v, nil
}

// errInside says that a position is not between two batches.
var errInside = errors.New("the position is not in the log")

func (l *Log) notHere(p record.Position, end ident.Offset) *fault.Error {
	return l.fault(fault.OffsetNotFound, "read", fmt.Errorf("no batch of the log begins or ends at %s", at(p))).With("end", int64(end))
}

// readPlaced reads from the segment of a view and, if that has nothing at the
// position, from the one after it, which the view then is of.
func (l *Log) readPlaced(v *placed, p record.Position, maxBytes int) ([]byte, error) {
	at := v.first
	e := extent{seek: p.Offset - 1, limit: v.limit, maxBytes: maxBytes, takes: func(h record.Header) (bool, error) {
		if at.Offset != h.Base { // the walk begins in the middle of the segment
			at = record.At(h.Base)
		}
		takes := !at.Before(p)
		if at = at.After(h); !takes && p.Before(at) {
			return false, errInside
		}
		return takes, nil
	}}
	fresh := v.fresh
	if v.then != nil {
		v.fresh = nil
	}
	out, err := l.readSegment(v.view, e)
	if err != nil || out != nil || v.then == nil {
		return out, err
	}
	if at.Offset != v.then.base {
		return nil, nil // it ended too early
	}
	v.seg, v.fresh, v.then = v.then, fresh, nil
	return l.readSegment(v.view, e)
}

// tailFrom takes batches out of memory: one as it is, several as a copy.
func (l *Log) tailFrom(tail []*item, p record.Position, maxBytes int) ([]byte, error) {
	first := sort.Search(len(tail), func(i int) bool { return p.Before(tail[i].after()) })
	if first == len(tail) {
		return nil, nil
	}
	if tail[first].at != p {
		return nil, l.notHere(p, lastOf(tail).head.Next())
	}
	n, size := first+1, len(tail[first].batch)
	for ; n < len(tail) && size+len(tail[n].batch) <= maxBytes; n++ {
		size += len(tail[n].batch)
	}
	if n == first+1 {
		return tail[first].batch, nil
	}
	out := make([]byte, 0, size)
	for _, it := range tail[first:n] {
		out = append(out, it.batch...)
	}
	return out, nil
}

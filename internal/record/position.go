package record

import (
	"cmp"

	"tidewire/internal/ident"
)

// Position is a place in a log between two batches: everything below Offset lies
// before it, and of the batches of voids alone that stand at Offset, which take no
// offset, so many do. The offset by itself would leave open which of those a
// replica has.
type Position struct {
	Offset ident.Offset
	Voids  int
}

// At is the position before everything that stands at an offset.
func At(o ident.Offset) Position { return Position{Offset: o} }

// Compare is negative where p lies before q, 0 where they are the same.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Offset, q.Offset), cmp.Compare(p.Voids, q.Voids))
}

// Before says whether p lies before q.
func (p Position) Before(q Position) bool { return p.Compare(q) < 0 }

// After is the position behind a batch that stands at p.
func (p Position) After(h Header) Position {
	if h.Span > 0 {
		return At(h.Next())
	}
	return Position{p.Offset, p.Voids + 1}
}

// Least is the one of both that lies before the other.
func Least(p, q Position) Position {
	if q.Before(p) {
		return q
	}
	return p
}

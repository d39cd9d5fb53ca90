package host

import (
	"time"

	"tidewire/broker/storage"
	"tidewire/internal/ident"
	"tidewire/internal/record"
)

// keeper is a partition's log as its replica wants it.
type keeper struct{ *storage.Log }

// Retain goes by position: a segment that ends where the committed part does may end
// with batches of voids that are not committed, and so may a producer state as of there,
// so both count only once all is.
func (l keeper) Retain(now time.Time, hw record.Position) error {
	return l.Log.Retain(now, l.whole(hw))
}

// Purge goes by position as well.
func (l keeper) Purge(below ident.Offset, hw record.Position) error {
	return l.Log.Purge(below, l.whole(hw))
}

// SetStart knows what is committed as an offset alone.
func (l keeper) SetStart(start, hw ident.Offset) error {
	return l.Log.SetStart(start, l.whole(record.At(hw)))
}

// whole is the last offset at which all that stands there is committed.
func (l keeper) whole(hw record.Position) ident.Offset {
	if hw.Before(l.EndPosition()) {
		return hw.Offset - 1
	}
	return hw.Offset
}

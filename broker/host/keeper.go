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
// with batches of voids that are not committed, so it goes only once all is.
func (l keeper) Retain(now time.Time, hw record.Position) error {
	if hw.Before(l.EndPosition()) {
		return l.Log.Retain(now, hw.Offset-1)
	}
	return l.Log.Retain(now, hw.Offset)
}

// SetStart takes the producer state as of the log's end, whatever is committed.
func (l keeper) SetStart(start, _ ident.Offset) error { return l.Log.SetStart(start) }

// Committed is the start: nothing more is kept of it through a restart.
func (l keeper) Committed() ident.Offset { return l.Start() }

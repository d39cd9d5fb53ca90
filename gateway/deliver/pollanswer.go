package deliver

import (
	"context"
	"time"

	"tidewire/gateway/budget"
	"tidewire/internal/fault"
)

const (
	// firstPieceBytes and pollPieceBytes bound the pieces of an answer, which
	// grow from one to the other; a message that is larger has one of its own.
	firstPieceBytes = 4 << 10
	pollPieceBytes  = 256 << 10
	// heldPatience is how long a poll waits for memory for its first message.
	heldPatience = 2 * time.Second
	// pollReadingBytes bounds the batches that all polls of a node together are
	// taking messages out of at one moment.
	pollReadingBytes = 64 << 20
)

// pollAnswer is the messages of a poll, in pieces: each is given back as soon as
// it is written, and none is copied to grow.
type pollAnswer struct {
	share  *budget.Share // holds the capacity of every piece
	pieces [][]byte
	bytes  int // of messages
	short  int // what the budget had no room for; 0: it had for all so far
}

// room sees to it that the last piece takes n bytes more.
func (a *pollAnswer) room(n int) bool {
	grown := firstPieceBytes
	if last := len(a.pieces) - 1; last >= 0 {
		b := a.pieces[last]
		if cap(b)-len(b) >= n {
			return true
		}
		grown = min(2*cap(b), pollPieceBytes)
	}
	for _, size := range []int{max(n, grown), n} {
		if a.share.Try(int64(size)) {
			a.pieces = append(a.pieces, make([]byte, 0, size))
			return true
		}
	}
	a.short = n
	return false
}

// await waits for what the budget had no room for.
func (a *pollAnswer) await(ctx context.Context) error {
	n := a.short
	if err := a.share.Need(ctx, int64(n), heldPatience); err != nil {
		return err
	}
	a.pieces, a.short = append(a.pieces, make([]byte, 0, n)), 0
	return nil
}

// append lets add append to the last piece, which has room, and returns by how
// much it grew.
func (a *pollAnswer) append(add func([]byte) []byte) int {
	last := &a.pieces[len(a.pieces)-1]
	n := -len(*last)
	*last = add(*last)
	n += len(*last)
	a.bytes += n
	return n
}

// undo takes the last n bytes away.
func (a *pollAnswer) undo(n int) {
	last := len(a.pieces) - 1
	b := a.pieces[last]
	a.bytes -= n
	if a.pieces[last] = b[:len(b)-n]; len(b) == n {
		a.pieces = a.pieces[:last]
		a.share.Give(int64(cap(b)))
	}
}

// beginReading waits until so many bytes may be read for a poll; release ends
// the reading.
func (h *Hub) beginReading(ctx context.Context, bytes int) (release func(), err error) {
	s := h.reading.Share()
	if !s.Try(int64(bytes)) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if s.Wait(ctx, int64(bytes)) != nil {
			return nil, fault.New(fault.Throttled, "the node reads as much for polls as it may, and has not come to this one within %s; ask again in a moment", patience)
		}
	}
	return s.Close, nil
}

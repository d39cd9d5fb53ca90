package httpapi

import (
	"context"
	"net/http"
	"time"

	"tidewire/gateway/budget"
)

const (
	// heldPatience is how long a call waits for memory: its answer's, or its
	// body's, which is not read meanwhile.
	heldPatience = 3 * time.Second
	// firstHeldPiece and heldPiece are how much an answer grows by at a time.
	firstHeldPiece = 4 << 10
	heldPiece      = 64 << 10
)

// heldAnswer is an answer that is large where the cluster is: it is made in
// pieces that count against what the node may hold.
type heldAnswer struct {
	ctx    context.Context // of the request
	share  *budget.Share
	pieces [][]byte
}

// add appends b.
func (h *heldAnswer) add(b []byte) error {
	last := len(h.pieces) - 1
	if last < 0 || cap(h.pieces[last])-len(h.pieces[last]) < len(b) {
		size := max(len(b), heldPiece)
		if last < 0 {
			size = max(len(b), firstHeldPiece)
		}
		if err := h.share.Need(h.ctx, int64(size), heldPatience); err != nil {
			return err
		}
		h.pieces = append(h.pieces, make([]byte, 0, size))
		last++
	}
	h.pieces[last] = append(h.pieces[last], b...)
	return nil
}

// writePieces writes an answer's pieces and gives each back as soon as it is out.
func writePieces(w http.ResponseWriter, pieces [][]byte, share *budget.Share) error {
	for i, piece := range pieces {
		if _, err := w.Write(piece); err != nil {
			return err // the client is gone: nobody to tell
		}
		pieces[i] = nil
		share.Give(int64(cap(piece)))
	}
	return nil
}

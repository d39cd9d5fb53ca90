package replica

import "tidewire/internal/ident"

// Floor is where a partition begins at least, as the coordinator decided: what lies below
// was purged.
type Floor struct {
	At ident.Offset
	// Unclamped is the first leader epoch that may lack what was committed before. The
	// floor is older, and counts up to where that epoch began: what came there since are
	// other records. 0: there is none, and it counts as it is.
	Unclamped ident.Epoch
}

// startLocked is the first offset that is served. Logs drop whole segments, and this node
// may have yet to drop some: a purge counts at once. Where it reaches beyond what is known
// here to be committed, nothing is left to serve.
func (r *Replica) startLocked() ident.Offset {
	return max(r.log.Start(), min(r.floorLocked(), r.hw))
}

func (r *Replica) floorLocked() ident.Offset {
	at := r.floor.At
	if at > 0 && r.floor.Unclamped != 0 {
		_, end := r.log.EpochEnd(r.floor.Unclamped - 1)
		at = min(at, end)
	}
	return at
}

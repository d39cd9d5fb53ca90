package deliver

import (
	"sort"

	"tidewire/internal/ident"
)

// ring holds the newest blocks of a partition, without a hole between them. Its
// bound is in bytes; the newest block always stays. It is guarded by its feed's
// mutex.
type ring struct {
	blocks []*block
	end    ident.Offset // next offset after the last block; -1: nothing is known yet
	epoch  ident.Epoch  // of the last block
	bytes  int
	// life counts how often the ring began anew: a reader that saw an earlier
	// life checks that its place still is part of the log.
	life int32
}

// restart empties the ring; it goes on at end. It returns the bytes let go.
func (r *ring) restart(end ident.Offset) int {
	freed := r.bytes
	r.blocks, r.bytes, r.end = nil, 0, end
	r.life++
	return freed
}

// add appends a block and drops old ones until the ring is within its bound. It
// returns by how many bytes the ring has grown.
func (r *ring) add(k *block, bound int) int {
	before := r.bytes
	r.end, r.epoch = k.next, k.epoch
	if k.base == k.next { // voids alone: nothing to read
		return 0
	}
	r.blocks = append(r.blocks, k)
	r.bytes += k.bytes()
	drop := 0
	for ; r.bytes > bound && drop < len(r.blocks)-1; drop++ {
		r.bytes -= r.blocks[drop].bytes()
		r.blocks[drop] = nil // the array may live on
	}
	r.blocks = r.blocks[drop:]
	return r.bytes - before
}

// stand is where a reader stands that has passed every block.
func (r *ring) stand() stand { return stand{r.end, r.epoch} }

// at is the block that holds an offset; nil where the ring does not.
func (r *ring) at(o ident.Offset) *block {
	if len(r.blocks) == 0 || o < r.blocks[0].base || o >= r.end {
		return nil
	}
	if last := r.blocks[len(r.blocks)-1]; o >= last.base {
		return last
	}
	i := sort.Search(len(r.blocks), func(i int) bool { return r.blocks[i].next > o })
	return r.blocks[i]
}

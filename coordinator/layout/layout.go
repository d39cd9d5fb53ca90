package layout

import (
	"fmt"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// First is the generation a topic is created with.
const First ident.Generation = 1

// Even cuts the hash space into n ranges, in order, none more than one hash
// wider than another. n must lie in 1..cluster.MaxPartitions.
func Even(n int) []ident.HashRange {
	if n < 1 || n > cluster.MaxPartitions {
		panic(fmt.Sprintf("layout: a topic has 1 to %d partitions, not %d", cluster.MaxPartitions, n))
	}
	ranges := make([]ident.HashRange, n)
	width, rest := ident.HashSpace/uint64(n), ident.HashSpace%uint64(n)
	lo := uint64(0)
	for i := range ranges {
		hi := lo + width
		if uint64(i) < rest {
			hi++
		}
		ranges[i] = ident.HashRange{Lo: lo, Hi: hi}
		lo = hi
	}
	return ranges
}

// Check says what is wrong with the ranges of the open partitions of one
// generation: they must cover every hash exactly once. The order does not matter.
func Check(ranges []ident.HashRange) error {
	starts := make(map[uint64]ident.HashRange, len(ranges))
	for _, r := range ranges {
		if !r.Valid() {
			return fmt.Errorf("range %s is empty or outside the hash space", r)
		}
		if other, taken := starts[r.Lo]; taken {
			return fmt.Errorf("ranges %s and %s overlap", other, r)
		}
		starts[r.Lo] = r
	}
	// Walk from 0: each range must begin where the one before it ended. A range
	// that is never reached begins inside another.
	at := uint64(0)
	for range ranges {
		r, found := starts[at]
		if !found {
			return fmt.Errorf("no range begins at %d", at)
		}
		at = r.Hi
	}
	if at != ident.HashSpace {
		return fmt.Errorf("the ranges end at %d, not at %d", at, ident.HashSpace)
	}
	return nil
}

package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Reached counts the states that a run came to. A simulation that never gets into a
// state proves nothing about it.
type Reached map[string]int

func (r Reached) hit(state string) { r[state]++ }

// Add sums up.
func (r Reached) Add(o Reached) {
	for k, n := range o {
		r[k] += n
	}
}

func (r Reached) String() string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(r)) {
		fmt.Fprintf(&b, "%10d  %s\n", r[k], k)
	}
	return b.String()
}

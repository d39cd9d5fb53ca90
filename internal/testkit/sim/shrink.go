package sim

import "slices"

// Shrink plays a failing run again with fewer and fewer faults, as long as it breaks the
// same invariant, and gives the run with the fewest. It plays at most so many runs.
func Shrink(r *Result, most int) *Result {
	best := r
	try := func(faults []Fault) bool {
		if most == 0 {
			return false
		}
		most--
		if t := Play(r.Seed, faults); t.Failure != nil && t.Failure.Invariant == r.Failure.Invariant {
			best = t
			return true
		}
		return false
	}
	// What comes after the failure does not matter.
	try(slices.DeleteFunc(slices.Clone(best.Faults), func(f Fault) bool { return begins+f.At > r.Failure.At }))
	for size := len(best.Faults) / 2; size > 0; size /= 2 {
		for from := 0; from < len(best.Faults); {
			if !try(slices.Delete(slices.Clone(best.Faults), from, min(from+size, len(best.Faults)))) {
				from += size
			}
		}
	}
	return best
}

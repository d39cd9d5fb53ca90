package state

import (
	"cmp"
	"slices"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// Sets of offsets are spans in their one form: ascending, none empty, none touching the
// next. The functions here take such sets and give new ones: what was handed out never
// changes.

// maxOffset keeps sums within bounds.
const maxOffset ident.Offset = 1 << 62

// sound says that spans someone sent can be taken for offsets.
func sound(spans []cluster.Span) bool {
	return !slices.ContainsFunc(spans, func(s cluster.Span) bool { return s.From < 0 || s.To <= s.From || s.To > maxOffset })
}

// formed says that spans are in their one form.
func formed(spans []cluster.Span) bool {
	for i := range spans {
		if i > 0 && spans[i].From <= spans[i-1].To {
			return false
		}
	}
	return sound(spans)
}

// union of sets; they need not be in their one form.
func union(sets ...[]cluster.Span) []cluster.Span {
	all := slices.Concat(sets...)
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b cluster.Span) int { return cmp.Compare(a.From, b.From) })
	out := all[:1]
	for _, s := range all[1:] {
		if last := &out[len(out)-1]; s.From <= last.To {
			last.To = max(last.To, s.To)
		} else {
			out = append(out, s)
		}
	}
	return slices.Clip(out)
}

// less is a set without what another holds.
func less(set, gone []cluster.Span) []cluster.Span {
	if len(gone) == 0 {
		return set
	}
	var out []cluster.Span
	k := 0
	for _, s := range set {
		for k < len(gone) && gone[k].To <= s.From {
			k++
		}
		for j := k; j < len(gone) && gone[j].From < s.To; j++ {
			if gone[j].From > s.From {
				out = append(out, cluster.Span{From: s.From, To: gone[j].From})
			}
			s.From = gone[j].To
		}
		if s.From < s.To {
			out = append(out, s)
		}
	}
	return out
}

// from is what of a set lies at an offset and above.
func from(set []cluster.Span, at ident.Offset) []cluster.Span {
	if len(set) == 0 || set[0].From >= at {
		return set
	}
	return less(set, []cluster.Span{{From: 0, To: at}})
}

// below is what of a set lies below an offset.
func below(set []cluster.Span, at ident.Offset) []cluster.Span {
	if len(set) == 0 || set[len(set)-1].To <= at {
		return set
	}
	return less(set, []cluster.Span{{From: at, To: maxOffset}})
}

func holds(set []cluster.Span, o ident.Offset) bool {
	i, found := slices.BinarySearchFunc(set, o, func(s cluster.Span, o ident.Offset) int { return cmp.Compare(s.From, o) })
	return found || i > 0 && set[i-1].To > o
}

// size is how many offsets a set holds.
func size(set []cluster.Span) (n int64) {
	for _, s := range set {
		n += int64(s.To - s.From)
	}
	return n
}

func single(o ident.Offset) cluster.Span { return cluster.Span{From: o, To: o + 1} }

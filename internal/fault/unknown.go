package fault

import "strings"

// Unknown is the error for a name that is not known: what says what kind of
// name ("field", "parameter", "setting"), known lists those that are. It names
// the nearest one, so that a typing error explains itself.
func Unknown(what, name string, known []string) *Error {
	if near := Nearest(name, known); near != "" {
		return New(UnknownField, "unknown %s %q; did you mean %q?", what, clip(name), near).With("field", clip(name))
	}
	if len(known) == 0 {
		return New(UnknownField, "unknown %s %q; none is taken here", what, clip(name)).With("field", clip(name))
	}
	return New(UnknownField, "unknown %s %q; known are %s", what, clip(name), strings.Join(known, ", ")).With("field", clip(name))
}

// Nearest is the known name that name was probably meant to be, or "" when
// none is near: at most a third of its letters may differ.
func Nearest(name string, known []string) string {
	if len(name) > 128 {
		return ""
	}
	best, bestDistance := "", 1+max(1, len(name)/3)
	for _, k := range known {
		if d := distance(strings.ToLower(name), strings.ToLower(k)); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// distance counts the letters to insert, drop, change or swap with a
// neighbour (restricted Damerau-Levenshtein).
func distance(a, b string) int {
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next := make([]int, len(b)+1)
		next[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next[j] = min(row[j]+1, next[j-1]+1, row[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}

func clip(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:64], "") + "…"
	}
	return s
}

package fault

import "strings"

// Unknown is the error for a name that is not known: what says what kind of
// name ("field", "parameter", "setting"), known lists those that are. It names
// the nearest one, so that a typing error explains itself.
func Unknown(what, name string, known []string) *Error {
	if near, ok := Nearest(name, known); ok {
		return New(UnknownField, "unknown %s %q; did you mean %q?", what, clip(name), near).With("field", clip(name))
	}
	if len(known) == 0 {
		return New(UnknownField, "unknown %s %q; none is taken here", what, clip(name)).With("field", clip(name))
	}
	return New(UnknownField, "unknown %s %q; known are %s", what, clip(name), strings.Join(known, ", ")).With("field", clip(name))
}

// Nearest finds the known name that is closest to a misspelt one; the first of
// several equally close ones wins, and none only where none is known. close
// says that it may well be meant: at most a third of the letters differ.
func Nearest(name string, known []string) (nearest string, close bool) {
	least := -1
	for _, k := range known {
		if d := distance(strings.ToLower(name), strings.ToLower(k)); least < 0 || d < least {
			nearest, least = k, d
		}
	}
	return nearest, least >= 0 && least <= max(1, len(name)/3)
}

// distance counts the letters to insert, drop, change or swap with a
// neighbour (optimal string alignment).
func distance(a, b string) int {
	// A hostile name must not cost quadratic time; past the longest real name
	// the order among the known ones is settled.
	const longest = 64
	a, b = a[:min(len(a), longest)], b[:min(len(b), longest)]
	before, row, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next[j+1] = min(row[j]+cost, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row, next = row, next, before
	}
	return row[len(b)]
}

func clip(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:64], "") + "…"
	}
	return s
}

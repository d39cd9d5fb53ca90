package boot

// Nearest finds the known name that is closest to a misspelt one, by edit
// distance. There is always one as long as any name is known; the first of
// several equally close ones wins.
func Nearest(name string, known []string) string {
	best, least := "", -1
	for _, k := range known {
		if d := distance(name, k); least < 0 || d < least {
			best, least = k, d
		}
	}
	return best
}

// distance counts the single-byte insertions, deletions, replacements and swaps
// of neighbours between a and b (optimal string alignment).
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

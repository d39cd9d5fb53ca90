package arch

import "slices"

// LongLines is the length of a file that needs a reason.
const LongLines = 400

// Long lists the files that are longer, the longest first. Nothing fails by it.
func (t *Tree) Long() []*File {
	var all []*File
	for _, f := range t.Files {
		if f.Lines > LongLines && !f.Generated {
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b *File) int { return b.Lines - a.Lines })
	return all
}

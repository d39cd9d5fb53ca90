package boot

import "tidewire/internal/fault"

// nearest is the known setting that a misspelt one is closest to.
func nearest(name string, known []string) string {
	n, _ := fault.Nearest(name, known)
	return n
}

package groups

import (
	"slices"

	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// line is what one life of a member, as it takes here, and one leader know of each other.
type line struct {
	held  int    // records in the member's hands, as the leader said last
	made  uint64 // the latest take
	under bool   // it is under way
	index uint64 // of the snapshot by which it was made
	// open are the partitions of which a take may have leased something, and the leader does
	// not know whether the answer came.
	open map[ident.Partition]open
}

type open struct {
	take  uint64 // the latest that may have leased something
	came  uint64 // the latest of which leases came
	stray bool   // it is not the member's own any more, so that no take will speak of it
}

// call is the number by which a call says which takes are over: those below it.
func (l *line) call() uint64 {
	if l.under {
		return l.made
	}
	return l.made + 1
}

// heard is what a call says of partitions, by their places, and at least as much as least.
func (l *line) heard(of []ident.Partition, least uint64) []uint64 {
	if len(l.open) == 0 && least == 0 {
		return nil
	}
	out := make([]uint64, len(of))
	for i, p := range of {
		out[i] = max(l.open[p].came, least)
	}
	return out
}

// begin notes a take before it is made.
func (l *line) begin(number, index uint64, of []ident.Partition) {
	l.made, l.index, l.under = number, index, true
	for _, p := range of {
		o := l.open[p]
		o.take = number
		l.open[p] = o
	}
}

// end notes what came of it: nothing, where the answer was lost.
func (l *line) end(number uint64, taken []rpc.TakenOf) {
	if l.made == number {
		l.under = false
	}
	for i := range taken {
		p := taken[i].Partition
		switch o := l.open[p]; {
		case taken[i].Err != nil || o.take == 0:
		case len(taken[i].Leases) > 0:
			o.came = max(o.came, number)
			l.open[p] = o
		case o.take == number:
			delete(l.open, p)
		}
	}
}

// lose notes that leases that came of a take are in nobody's hands. What the leader has been
// told meanwhile stays.
func (l *line) lose(number uint64) {
	for p, o := range l.open {
		if o.came == number {
			o.came = number - 1
			l.open[p] = o
		}
	}
}

// told notes that the leader of a partition has had what a call said.
func (l *line) told(call uint64, p ident.Partition) {
	if o, ok := l.open[p]; ok && o.take < call {
		delete(l.open, p)
	}
}

// aim says which partitions the member has here now. True: there are others that are open.
func (l *line) aim(of []ident.Partition) (strays bool) {
	for p, o := range l.open {
		o.stray = !slices.Contains(of, p)
		l.open[p] = o
		strays = strays || o.stray
	}
	return strays
}

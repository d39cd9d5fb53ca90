package message

// Tally follows the numbers that one subscriber gets: every strideth from its
// first one on, in order, each once.
type Tally struct {
	next, stride int64

	Lost       int64 // passed over
	Duplicates int64 // came again, or late
}

// NewTally expects first, first+stride, first+2*stride, …
func NewTally(first, stride int64) Tally { return Tally{next: first, stride: stride} }

// Take notes a number that has arrived and tells how many were expected up to
// it that have not been told of before, itself included: 1 where all is well.
func (t *Tally) Take(n int64) (fresh int64) {
	if n == t.next {
		t.next += t.stride
		return 1
	}
	if n < t.next {
		t.Duplicates++
		return 0
	}
	fresh = (n-t.next)/t.stride + 1
	t.Lost += fresh - 1
	t.next = n + t.stride
	return fresh
}

// Next is the number that is expected.
func (t *Tally) Next() int64 { return t.next }

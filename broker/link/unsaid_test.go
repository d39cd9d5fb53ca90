package link

import (
	"testing"
	"time"

	"tidewire/internal/ident"
)

func TestWhatIsUnsaidEnds(t *testing.T) {
	s := unsaid{of: map[ident.Partition]pushed{}}
	a, b := &upstream{}, &upstream{}
	at := func(i ident.Index) ident.Partition { return ident.Partition{Index: i} }
	expect := func(want int) {
		t.Helper()
		if got := s.count(); got != want {
			t.Fatalf("%d are unsaid, want %d", got, want)
		}
	}
	now := time.Now()
	s.pushed(at(1), a, now)
	s.pushed(at(1), a, now)
	s.pushed(at(2), a, now)
	s.pushed(at(3), b, now)
	expect(3)
	s.said(at(1))
	expect(2)
	s.forget(b) // its stream ended
	expect(1)
	s.pushed(at(4), b, now.Add(unsaidFor)) // nothing is said any more of 2, which was taken from this node
	expect(1)
	s.said(at(4))
	expect(0)
}

package replication

import (
	"testing"

	"tidewire/internal/record"
)

// A replica can be moved away and back while its leader sees neither: it has let go of
// what it said to have. The leader knows by the version that it has missed something, and
// the replica says anew where it stands once it knows that version.
func TestAWordFromBeforeAVersionBringsNobodyIn(t *testing.T) {
	l := led(view(1, a, b))
	l.agreed(b, 10)
	l.agreed(c, 10)
	l.See(view(3, a, b), at(1))
	proposes(t, l, at(1))
	for version := uint64(1); version <= 3; version++ {
		l.Agree(life(c), version, record.At(10), 6)
		l.Held(life(c), 7, record.At(10))
		if version < 3 {
			proposes(t, l, at(1))
		}
	}
	proposes(t, l, at(1), a, b, c)
}

package coordinator

import (
	"testing"
	"time"

	"tidewire/coordinator/consensus"
	"tidewire/internal/ident"
)

func TestWhichDeadCoordinatorsAreLetGo(t *testing.T) {
	// A capital letter is a voter, a small one has no vote; dead ones and retired ones
	// are named beside them.
	for name, c := range map[string]struct {
		members, dead, retired string
		young                  bool // dead for less than deadFor
		want                   byte // 0: nobody
	}{
		"nobody is dead":                      {members: "ABC"},
		"one of three stays":                  {members: "ABC", dead: "C"},
		"another has come for it":             {members: "ABCD", dead: "C", want: 'C'},
		"and it has been dead for a moment":   {members: "ABCD", dead: "C", young: true},
		"two of four: no majority lives":      {members: "ABCD", dead: "CD"},
		"one without a vote":                  {members: "ABCd", dead: "d", want: 'd'},
		"one without a vote, beside a dead":   {members: "ABCd", dead: "Cd", want: 'd'},
		"a retired one of three":              {members: "ABC", dead: "C", retired: "C", want: 'C'},
		"a retired one that is not dead":      {members: "ABC", retired: "C"},
		"a retired one of two: none to agree": {members: "AB", dead: "B", retired: "B"},
		"two of five stay":                    {members: "ABCDE", dead: "DE"},
		"two of six: one goes":                {members: "ABCDEF", dead: "EF", want: 'E'},
	} {
		in := func(set string) func(ident.NodeID) bool {
			return func(id ident.NodeID) bool {
				for _, b := range []byte(set) {
					if b == id[0] {
						return true
					}
				}
				return false
			}
		}
		var members []consensus.Member
		for _, b := range []byte(c.members) {
			members = append(members, consensus.Member{ID: ident.NodeID{b}, Voter: b < 'a'})
		}
		since, now := map[ident.NodeID]time.Time{}, time.Unix(1000, 0)
		if got := expendable(now, members, in(c.dead), in(c.retired), since); got != (ident.NodeID{}) {
			t.Errorf("%s: %c goes at once", name, got[0])
		}
		later := now.Add(deadFor)
		if c.young {
			later = later.Add(-1)
		}
		if got := expendable(later, members, in(c.dead), in(c.retired), since); got[0] != c.want {
			t.Errorf("%s: %q goes, not %q", name, got[0], c.want)
		}
		// One that was back for a moment begins anew.
		expendable(later, members, in(""), in(""), since)
		if got := expendable(later, members, in(c.dead), in(c.retired), since); got != (ident.NodeID{}) {
			t.Errorf("%s: %c goes as soon as it is dead again", name, got[0])
		}
	}
}

package membership_test

import (
	"testing"

	"pgregory.net/rapid"

	"tidewire/internal/ident"
	"tidewire/internal/membership"
)

func candidate(id byte, expect int) membership.Candidate {
	return membership.Candidate{ID: ident.NodeID{id}, Empty: true, Expect: expect}
}

// agreed are candidates that all see one another.
func agreed(expect int, ids ...byte) []membership.Candidate {
	var all []membership.Candidate
	for _, id := range ids {
		all = append(all, candidate(id, expect))
	}
	for i := range all {
		all[i].Sees = membership.Sees(all[i], all, expect)
	}
	return all
}

func TestWhoFounds(t *testing.T) {
	three := agreed(3, 4, 2, 9)
	four := agreed(3, 4, 2, 9, 1)
	unlike := agreed(3, 4, 2, 9)
	unlike[2].Expect = 5
	blind := agreed(3, 4, 2, 9)
	blind[0].Sees++
	known := agreed(3, 4, 2, 9)
	known[2].Cluster = ident.ClusterID{1}
	used := agreed(3, 4, 2, 9)
	used[2].Empty = false
	old := candidate(2, 3)
	old.Empty = false
	for name, c := range map[string]struct {
		self   membership.Candidate
		seen   []membership.Candidate
		expect int
		want   membership.Step
	}{
		"alone, told to be":                   {candidate(2, 1), nil, 1, membership.Found},
		"alone, told to join":                 {candidate(2, 0), nil, 0, membership.Join},
		"alone, told to wait for three":       {candidate(2, 3), nil, 3, membership.Wait},
		"itself among those it sees":          {candidate(2, 1), agreed(1, 2), 1, membership.Found},
		"the lowest of three":                 {three[1], three, 3, membership.Found},
		"not the lowest of three":             {three[0], three, 3, membership.Wait},
		"two of three":                        {three[1], three[:2], 3, membership.Wait},
		"four that agree, the lowest":         {four[3], four, 3, membership.Found},
		"four that agree, the second":         {four[1], four, 3, membership.Wait},
		"one that waits for others":           {unlike[1], unlike, 3, membership.Wait},
		"one that does not see all":           {blind[1], blind, 3, membership.Wait},
		"one that has a cluster":              {known[1], known, 3, membership.Join},
		"one that does not wait (yet)":        {used[1], used, 3, membership.Wait},
		"this one had a cluster":              {old, three, 3, membership.Join},
		"two that were told to be alone, low": {candidate(2, 1), agreed(1, 2, 3), 1, membership.Found},
		"two that were told to be alone":      {agreed(1, 2, 3)[1], agreed(1, 2, 3), 1, membership.Wait},
	} {
		if got := membership.Founder(c.self, c.seen, c.expect); got.Do != c.want {
			t.Errorf("%s: %s (%s), not %s", name, got.Do, got.Why, c.want)
		}
	}
}

// However each one's view came about: of those that act on what they and the others
// told last, at most one founds.
func TestAtMostOneFounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "nodes")
		expect := rapid.IntRange(2, 4).Draw(t, "expect")
		views := make([][]byte, n)
		told := make([]membership.Candidate, n)
		for i := range n {
			for j := range n {
				if i == j || rapid.IntRange(0, 3).Draw(t, "sees") > 0 {
					views[i] = append(views[i], byte(j+1))
				}
			}
			told[i] = candidate(byte(i+1), expect)
			var seen []membership.Candidate
			for _, id := range views[i] {
				seen = append(seen, candidate(id, expect))
			}
			told[i].Sees = membership.Sees(told[i], seen, expect)
		}
		founders := 0
		for i := range n {
			var seen []membership.Candidate
			for _, id := range views[i] {
				seen = append(seen, told[id-1])
			}
			if membership.Founder(told[i], seen, expect).Do == membership.Found {
				founders++
			}
		}
		// Two disjoint groups that each see only themselves can never know of one
		// another: that takes twice as many as are waited for.
		if founders > 1 && n < 2*expect {
			t.Fatalf("%d of %d found", founders, n)
		}
	})
}

package cluster_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"tidewire/internal/cluster"
)

// A twin keeps every lease there ever was.
func TestALeaseIsForWhoHasActedOnWhatItsCoordinatorKnew(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	began := time.Unix(1_000, 0)
	type grant struct {
		until time.Time
		index uint64
	}
	for range 500 {
		var l cluster.Leases
		var all []grant
		now := began
		for range 40 {
			now = now.Add(time.Duration(rng.IntN(1_000)) * time.Millisecond)
			g := grant{now.Add(time.Duration(rng.IntN(2_000)) * time.Millisecond), uint64(rng.IntN(10))}
			all = append(all, g)
			l = l.With(now, g.until, g.index)
			for acted := range uint64(11) {
				var want, got time.Time
				for _, g := range all {
					if g.index <= acted && g.until.After(want) {
						want = g.until
					}
				}
				if got = l.Leads(acted); !got.Equal(want) && (got.After(now) || want.After(now)) {
					t.Fatalf("who has acted on %d leads until %v, not %v", acted, got, want)
				}
			}
			if l.Leads(10) != l.Until() {
				t.Fatal("the life counts no longer than what it leads")
			}
		}
	}
	if !(cluster.Leases{}).Until().IsZero() {
		t.Fatal("a lease out of nothing")
	}
}

package groups

import (
	"slices"
	"testing"
	"testing/synctest"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// A group pauses while as many records as may be are not done, and is named as long.
func TestGroupsThatPauseAreNamed(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 1)
		ref, b := topic.Ref(0), s.nodes[n1]
		g := s.group(topic, "billing", func(s *cluster.GroupSettings) { s.MaxInFlight = cluster.MaxUnfinished })
		for range cluster.MaxUnfinished + 1 {
			s.log.Append(ref, "a")
		}
		m := s.join(g, "m1")
		named := func(want ...Pause) {
			t.Helper()
			synctest.Wait() // who settles is answered before that is noted
			if got := b.Paused(); !slices.Equal(got, want) {
				t.Fatalf("%v, not %v", got, want)
			}
		}
		take := func() []ident.Offset {
			leases, err := b.take(t, ref, m, cluster.MaxUnfinished, 0)
			if err != nil {
				t.Fatal(err)
			}
			var all []ident.Offset
			for _, l := range leases {
				all = append(all, l.Offset)
			}
			return all
		}
		named()
		if n := len(take()); n != cluster.MaxUnfinished {
			t.Fatal(n)
		}
		named(Pause{ref, "billing"})
		b.acks(t, ref, m, 7)
		named()
		if got := take(); !slices.Equal(got, []ident.Offset{cluster.MaxUnfinished}) {
			t.Fatal(got)
		}
		s.log.Append(ref, "a")
		if _, err := b.take(t, ref, m, 1, 0); err != nil {
			t.Fatal(err)
		}
		named(Pause{ref, "billing"})
		b.settles(t, m, rpc.SettleOf{Partition: ref, Through: 9})
		named()
		s.reset(g, 0)
		take()
		named(Pause{ref, "billing"})
		s.lead(ref, n2)
		named()
	})
}

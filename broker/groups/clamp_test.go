package groups

import (
	"slices"
	"testing"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// A leader that may lack records gives none to groups, and says nothing of how they stand,
// before they are set back to where its log ended. Then a record under the offset of one
// that is lost is given like any other, and the lost one can be acknowledged no more.
func TestGroupsWaitUntilTheyAreClamped(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 1)
		ref := topic.Ref(0)
		g := s.group(topic, "billing", nil)
		s.log.Append(ref, "a", "b", "c")
		m := s.join(g, "m1")
		s.nodes[n1].takes(t, ref, m, 9, 0, "0/1", "1/1", "2/1")
		s.nodes[n1].acks(t, ref, m, 0, 1)
		unclamped := func(e ident.Epoch) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.changeLocked(func(snap *cluster.Snapshot) {
				t := *snap.ByID[ref.Topic]
				t.Partitions = slices.Clone(t.Partitions)
				t.Partitions[0].Unclamped, t.Modified = e, snap.Index
				snap.Topics[t.Name], snap.ByID[t.ID] = &t, &t
			})
		}
		unclamped(2)
		s.lead(ref, n2)
		loads := s.loaded()
		if leases, err := s.nodes[n2].take(t, ref, m, 9, 0); !fault.Is(err, fault.LeaderUnavailable) {
			t.Fatalf("%v, %v", leases, err)
		}
		if got, err := s.nodes[n2].Standings(t.Context(), rpc.StandingsOf{Groups: []ident.GroupID{g.ID}, Partitions: []ident.Partition{ref}}); err == nil {
			t.Fatalf("%+v", got)
		}
		if n := s.loaded(); n != loads {
			t.Fatalf("its progress was read %d times", n-loads)
		}
		s.reset(g, 1) // as the coordinator does, in the same change
		unclamped(0)
		m = s.join(g, "m1")
		s.nodes[n2].takes(t, ref, m, 1, 0, "1/1")
		if stale, err := s.nodes[n2].settle(t, m, rpc.SettleOf{Partition: ref, Through: -1, Ack: []ident.Offset{1, 2}}); err != nil || len(stale) != 1 || stale[2] != "fenced" {
			t.Fatalf("%v, %v", stale, err)
		}
	})
}

package groups

import (
	"testing"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/rpc"
)

// A leader that does not know the leases of the one before gives another member nothing as
// long as one of them may live.
func TestANewLeaderWaitsForLeasesThatItDoesNotKnow(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 1)
		ref := topic.Ref(0)
		g := s.group(topic, "billing", nil)
		s.log.Append(ref, "a", "b")
		m1 := s.join(g, "m1")
		m2 := s.join(g, "m2")
		s.nodes[n1].takes(t, ref, m1, 1, 0, "0/1")
		s.lead(ref, n2)
		began := time.Now()
		s.lapse(g, "m1", "m2")
		s.nodes[n2].takes(t, ref, m2, 5, time.Hour, "0/1", "1/1")
		if d := time.Since(began); d != handover+30*time.Second {
			t.Errorf("after %v", d)
		}
	})
}

// Nor does one whose machine began anew under the same epoch.
func TestAMachineThatBeginsAnewWaitsForTheLeasesOfTheOneBefore(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 1)
		ref, b := topic.Ref(0), s.nodes[n1]
		g := s.group(topic, "billing", nil)
		s.log.Append(ref, "a", "b")
		m1 := s.join(g, "m1")
		m2 := s.join(g, "m2")
		b.takes(t, ref, m1, 2, 0, "0/1", "1/1")
		time.Sleep(time.Minute)
		b.takes(t, ref, m1, 1, 0, "0/2")
		s.set(func(s *stage) { s.refuseOwn = true }) // the count
		time.Sleep(time.Second)
		s.set(func(s *stage) { s.refuseOwn = false })
		s.lapse(g, "m1", "m2")
		began := time.Now()
		b.takes(t, ref, m2, 5, time.Hour, "0/1", "1/1")
		if d := time.Since(began); d < 28*time.Second {
			t.Errorf("after %v", d)
		}
	})
}

// A replica that leads in another epoch than its post is not asked.
func TestAPostOfAnotherEpochGivesNothing(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 1)
		ref, b := topic.Ref(0), s.nodes[n1]
		m := s.join(s.group(topic, "billing", nil), "m1")
		s.log.Append(ref, "a", "b")
		b.takes(t, ref, m, 1, 0, "0/1")
		b.mu.Lock()
		b.epochs[ref] = 2
		b.mu.Unlock()
		if _, err := b.take(t, ref, m, 1, 0); !fault.Is(err, fault.LeaderUnavailable) {
			t.Error(err)
		}
		if _, err := b.settle(t, m, rpc.SettleOf{Partition: ref, Through: 0}); !fault.Is(err, fault.LeaderUnavailable) {
			t.Error(err)
		}
		if _, err := b.RecordStatus(t.Context(), rpc.RecordStatusOf{Partition: ref}); !fault.Is(err, fault.LeaderUnavailable) {
			t.Error(err)
		}
	})
}

// A leader whose lease of a broker is over gives nothing, takes nothing and tells nothing;
// once it has another, and nobody else led meanwhile, it goes on where it was.
func TestALeaderWithoutItsLeaseStandsStill(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 1)
		ref, b := topic.Ref(0), s.nodes[n1]
		g := s.group(topic, "billing", nil)
		s.log.Append(ref, "a", "b")
		m := s.join(g, "m1")
		b.takes(t, ref, m, 1, 0, "0/1")
		sure := func(sure bool) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.unsure = !sure
		}
		sure(false)
		if _, err := b.take(t, ref, m, 1, time.Minute); !fault.Is(err, fault.LeaderUnavailable) {
			t.Error(err)
		}
		if _, err := b.settle(t, m, rpc.SettleOf{Partition: ref, Through: 0}); !fault.Is(err, fault.LeaderUnavailable) {
			t.Error(err)
		}
		if _, err := b.RecordStatus(t.Context(), rpc.RecordStatusOf{Partition: ref}); !fault.Is(err, fault.LeaderUnavailable) {
			t.Error(err)
		}
		time.Sleep(10 * time.Second)
		sure(true)
		b.takes(t, ref, m, 2, 0, "1/1")
		b.acks(t, ref, m, 0, 1)
		if floor, _ := s.tally(g); floor != 2 {
			t.Errorf("floor %d", floor)
		}
	})
}

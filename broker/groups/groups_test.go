package groups

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

func shared(s *cluster.GroupSettings) { s.Mode = cluster.Shared }

func TestRecordsAreLeasedAndAcknowledged(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 1)
		ref, b := topic.Ref(0), s.nodes[n1]
		g := s.group(topic, "billing", nil)
		s.log.Append(ref, "a", "b", "c")
		s.log.Append(ref, "d", "e")
		m := s.join(g, "m1")
		b.takes(t, ref, m, 4, 0, "0/1", "1/1", "2/1", "3/1")
		b.acks(t, ref, m, 0, 1, 3)
		if floor, done := s.tally(g); floor != 2 || len(done) != 3 {
			t.Errorf("floor %d, %v", floor, done)
		}
		if stale, err := b.settle(t, m, rpc.SettleOf{Partition: ref, Through: -1, Ack: []ident.Offset{0, 9}}); err != nil || !maps.Equal(stale, map[ident.Offset]string{9: "offset-not-found"}) {
			t.Errorf("%v, %v", stale, err)
		}
		b.takes(t, ref, m, 10, 0, "4/1")
		b.settles(t, m, rpc.SettleOf{Partition: ref, Through: 4})
		if floor, _ := s.tally(g); floor != 5 {
			t.Errorf("floor %d", floor)
		}
		b.takes(t, ref, m, 10, time.Second)
	})
}

// Who waits hears of a new record, of one that comes back, and of nothing else.
func TestATakeWaits(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 1)
		ref, b := topic.Ref(0), s.nodes[n1]
		g := s.group(topic, "billing", nil)
		m := s.join(g, "m1")
		began := time.Now()
		time.AfterFunc(3*time.Second, func() { s.log.Append(ref, "a") })
		b.takes(t, ref, m, 1, time.Minute, "0/1")
		if d := time.Since(began); d != 3*time.Second {
			t.Errorf("it waited %v", d)
		}
		b.settles(t, m, rpc.SettleOf{Partition: ref, Through: -1, Nack: []rpc.Nack{{Offset: 0, Delay: -1}}})
		began = time.Now()
		b.takes(t, ref, m, 1, time.Minute, "0/2")
		if d := time.Since(began); d != time.Second {
			t.Errorf("it waited %v", d)
		}
		began = time.Now()
		b.takes(t, ref, m, 1, time.Minute, "0/3") // after its lease, and a backoff that doubled
		if d := time.Since(began); d != 32*time.Second {
			t.Errorf("it waited %v", d)
		}
	})
}

// A take whose caller is gone leases nothing, and one that wants nothing only waits.
func TestATakeOfNobodyLeasesNothing(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 1)
		ref, b := topic.Ref(0), s.nodes[n1]
		g := s.group(topic, "billing", shared)
		m := s.join(g, "m1")
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if got, err := b.Take(ctx, rpc.Take{MemberLife: m, Partitions: []ident.Partition{ref}, Limit: 5, Wait: time.Minute}); !fault.Is(err, fault.LeaderUnavailable) {
				t.Errorf("%+v, %v", got, err)
			}
		})
		wg.Go(func() {
			got, err := b.Take(t.Context(), rpc.Take{MemberLife: m, Partitions: []ident.Partition{ref}, Wait: time.Minute})
			if err != nil || len(got.Of[0].Leases) > 0 || got.Of[0].Err != nil || !got.More {
				t.Errorf("%+v, %v", got, err)
			}
		})
		synctest.Wait()
		cancel()
		synctest.Wait()
		s.log.Append(ref, "a")
		wg.Wait()
		b.takes(t, ref, m, 5, 0, "0/1")
		if _, err := b.Take(ctx, rpc.Take{MemberLife: m, Partitions: []ident.Partition{ref}, Limit: 5}); err == nil {
			t.Error("nobody took something")
		}
	})
}

// Nor does one whose caller goes while his records are read: that was no delivery.
func TestACallerWhoGoesGivesBackWhatHeWasToGet(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 1)
		ref, b := topic.Ref(0), s.nodes[n1]
		m := s.join(s.group(topic, "billing", shared), "m1")
		s.log.Append(ref, "a")
		b.takes(t, ref, m, 1, 0, "0/1")
		b.settles(t, m, rpc.SettleOf{Partition: ref, Through: -1, Nack: []rpc.Nack{{Offset: 0}}})
		ctx, cancel := context.WithCancel(t.Context())
		b.mu.Lock()
		b.reading = cancel
		b.mu.Unlock()
		if got, err := b.Take(ctx, rpc.Take{MemberLife: m, Partitions: []ident.Partition{ref}, Limit: 5}); !fault.Is(err, fault.LeaderUnavailable) {
			t.Errorf("%+v, %v", got, err)
		}
		b.takes(t, ref, m, 1, 0, "0/2")
	})
}

// Those who wait get what comes in turn, one record one of them.
func TestWaitingMembersTakeTurns(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 1)
		ref, b := topic.Ref(0), s.nodes[n1]
		g := s.group(topic, "billing", shared)
		var mu sync.Mutex
		got := map[ident.Offset]string{}
		var wg sync.WaitGroup
		for i := range 50 {
			m := s.join(g, fmt.Sprint("m", i))
			wg.Go(func() {
				leases, err := b.take(t, ref, m, 1, 10*time.Second)
				if err != nil || len(leases) != 1 {
					t.Errorf("%v, %v", leases, err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if got[leases[0].Offset] != "" {
					t.Errorf("offset %d is in two hands", leases[0].Offset)
				}
				got[leases[0].Offset] = m.Member
			})
		}
		synctest.Wait()
		for range 5 {
			s.log.Append(ref, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j")
			time.Sleep(time.Millisecond)
		}
		wg.Wait()
		if len(got) != 50 {
			t.Errorf("%d records", len(got))
		}
	})
}

// What was acknowledged stays so under the next leader, and what was not comes again.
func TestATakeoverGoesOnWithoutLoss(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 1)
		ref := topic.Ref(0)
		g := s.group(topic, "billing", nil)
		s.log.Append(ref, "a", "b", "c", "d")
		m := s.join(g, "m1")
		s.nodes[n1].takes(t, ref, m, 9, 0, "0/1", "1/1", "2/1", "3/1")
		s.nodes[n1].acks(t, ref, m, 1)
		var wg sync.WaitGroup
		wg.Go(func() {
			if leases, err := s.nodes[n1].take(t, ref, m, 0, time.Minute); !fault.Is(err, fault.LeaderUnavailable) {
				t.Errorf("%v, %v", leases, err)
			}
		})
		wg.Go(func() {
			other := s.join(g, "m2")
			if leases, err := s.nodes[n1].take(t, ref, other, 1, time.Minute); !fault.Is(err, fault.Fenced) {
				t.Errorf("%v, %v", leases, err)
			}
		})
		time.Sleep(time.Second)
		s.lead(ref, n2)
		wg.Wait()
		if _, err := s.nodes[n1].take(t, ref, m, 1, 0); !fault.Is(err, fault.LeaderUnavailable) {
			t.Error(err)
		}
		s.nodes[n2].acks(t, ref, m, 0) // given by the former one
		s.nodes[n2].takes(t, ref, m, 10, 0, "2/1", "3/1")
		s.nodes[n2].acks(t, ref, m, 2, 3)
		if floor, _ := s.tally(g); floor != 4 {
			t.Errorf("floor %d", floor)
		}
	})
}

// Who extends hears how long the lease is, also where it had to wait for the coordinator.
func TestAnExtensionSaysHowLongItIs(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 1)
		ref, b := topic.Ref(0), s.nodes[n1]
		g := s.group(topic, "billing", nil)
		s.log.Append(ref, "a", "b")
		m := s.join(g, "m1")
		b.takes(t, ref, m, 2, 0, "0/1", "1/1")
		time.Sleep(10 * time.Second)
		s.set(func(s *stage) { s.delay = time.Second })
		done, err := b.Settle(t.Context(), rpc.Settle{MemberLife: m, Of: []rpc.SettleOf{{Partition: ref, Through: -1, Ack: []ident.Offset{0}, Extend: []ident.Offset{1}}}})
		if err != nil || done.Of[0].Err != nil || len(done.Of[0].Extended) != 1 {
			t.Fatalf("%+v, %v", done, err)
		}
		if e := done.Of[0].Extended[0]; e.Offset != 1 || e.Left > 29*time.Second || e.Left < 28*time.Second {
			t.Errorf("%+v", e)
		}
		done, err = b.Settle(t.Context(), rpc.Settle{MemberLife: m, Of: []rpc.SettleOf{{Partition: ref, Through: -1, Extend: []ident.Offset{0, 1}}}})
		if err != nil || len(done.Of[0].Stale) != 1 || len(done.Of[0].Extended) != 1 || done.Of[0].Extended[0].Left != 30*time.Second {
			t.Errorf("%+v, %v", done, err)
		}
	})
}

// Who acknowledges all up to a record at a new leader, which knows no leases, is told of what
// that one cannot know; it reads the log up to there, and no further.
func TestAllUpToARecordAfterATakeover(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 1)
		ref := topic.Ref(0)
		g := s.group(topic, "billing", nil)
		for i := range 40 {
			s.log.Append(ref, fmt.Sprint(i, strings.Repeat("x", 200_000))) // more than is read at once
		}
		m := s.join(g, "m1")
		for leased := 0; leased < 20; {
			leases, err := s.nodes[n1].take(t, ref, m, 60, 0)
			if err != nil || len(leases) == 0 {
				t.Fatal(leases, err)
			}
			leased += len(leases)
		}
		s.nodes[n1].settles(t, m, rpc.SettleOf{Partition: ref, Through: -1, Ack: []ident.Offset{1, 2, 3}})
		s.lead(ref, n2)
		stale, err := s.nodes[n2].settle(t, m, rpc.SettleOf{Partition: ref, Through: 12})
		if err != nil || len(stale) != 9 || stale[0] != "fenced" || stale[1] != "" || stale[4] != "fenced" || stale[11] != "fenced" {
			t.Fatalf("%v, %v", stale, err)
		}
		s.nodes[n2].acks(t, ref, m, slices.Sorted(maps.Keys(stale))...)
		if floor, _ := s.tally(g); floor != 13 {
			t.Errorf("floor %d", floor)
		}
	})
}

// A leader that has not heard that it leads no more has no acknowledgement taken, and after
// its lease nothing is asked of it.
func TestAFormerLeaderTakesNothing(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 1)
		ref := topic.Ref(0)
		g := s.group(topic, "billing", shared)
		s.log.Append(ref, "a", "b")
		m := s.join(g, "m1")
		former := s.nodes[n1]
		former.takes(t, ref, m, 2, 0, "0/1", "1/1")
		former.mu.Lock()
		former.deaf = true
		former.mu.Unlock()
		s.lead(ref, n2)
		s.nodes[n2].takes(t, ref, m, 1, 0, "0/1")
		stale, err := former.settle(t, m, rpc.SettleOf{Partition: ref, Through: -1, Ack: []ident.Offset{0, 1}})
		if err == nil && len(stale) < 2 {
			t.Errorf("%v, %v", stale, err)
		}
		if floor, _ := s.tally(g); floor != 0 {
			t.Errorf("floor %d", floor)
		}
		former.mu.Lock()
		former.unsure = true
		former.mu.Unlock()
		if _, err := former.take(t, ref, m, 1, 0); !fault.Is(err, fault.LeaderUnavailable) {
			t.Error(err)
		}
		if _, err := former.settle(t, m, rpc.SettleOf{Partition: ref, Through: -1, Ack: []ident.Offset{0}}); !fault.Is(err, fault.LeaderUnavailable) {
			t.Error(err)
		}
		s.nodes[n2].acks(t, ref, m, 0, 1)
	})
}

// A leader whose lease is renewed, and that hears nothing of what is decided, leases nothing
// from the first renewal on that knows more than it does.
func TestALeaseThatIsNewerThanTheFeedLeasesNothing(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 1)
		ref := topic.Ref(0)
		g := s.group(topic, "billing", nil)
		s.log.Append(ref, "a", "b", "c")
		m := s.join(g, "m1")
		former := s.nodes[n1]
		renew := func() { // a coordinator that knows of everything grants the lease
			s.mu.Lock()
			defer s.mu.Unlock()
			former.mu.Lock()
			defer former.mu.Unlock()
			former.decided = s.snap.Index
		}
		renew()
		former.takes(t, ref, m, 1, 0, "0/1")
		former.mu.Lock()
		former.deaf = true
		former.mu.Unlock()
		s.lead(ref, n2)
		former.takes(t, ref, m, 1, 0, "1/1") // its lease is as old as what it knows
		renew()
		if leases, err := former.take(t, ref, m, 1, 0); !fault.Is(err, fault.LeaderUnavailable) {
			t.Errorf("leases %v, %v", leases, err)
		}
		if _, err := former.settle(t, m, rpc.SettleOf{Partition: ref, Through: -1, Ack: []ident.Offset{0}}); !fault.Is(err, fault.LeaderUnavailable) {
			t.Error(err)
		}
		if _, err := former.RecordStatus(t.Context(), rpc.RecordStatusOf{Partition: ref}); !fault.Is(err, fault.LeaderUnavailable) {
			t.Error(err)
		}
		s.nodes[n2].acks(t, ref, m, 0, 1)
	})
}

// A member whose life is over, or that owns the partition no more, changes nothing.
func TestAcknowledgementsOfZombies(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 1)
		ref, b := topic.Ref(0), s.nodes[n1]
		g := s.group(topic, "billing", nil)
		s.log.Append(ref, "a", "b")
		old := s.join(g, "m1")
		b.takes(t, ref, old, 1, 0, "0/1")
		m := s.join(g, "m1") // elsewhere
		if _, err := b.settle(t, old, rpc.SettleOf{Partition: ref, Through: -1, Ack: []ident.Offset{0}}); !fault.Is(err, fault.Fenced) {
			t.Error(err)
		}
		if _, err := b.take(t, ref, old, 1, 0); !fault.Is(err, fault.Fenced) {
			t.Error(err)
		}
		other := s.join(g, "m2")
		if stale, err := b.settle(t, other, rpc.SettleOf{Partition: ref, Through: -1, Ack: []ident.Offset{1}}); err != nil || stale[1] != "fenced" {
			t.Error(stale, err)
		}
		b.takes(t, ref, m, 2, 0, "0/2", "1/1")
		s.lapse(g, "m1", "m2")
		if leases, err := b.take(t, ref, other, 2, 0); err != nil || len(leases) > 0 {
			t.Errorf("%v, %v while leases of the one before may live", leases, err)
		}
		began := time.Now()
		b.takes(t, ref, other, 1, time.Hour, "1/2")
		if d := time.Since(began); d < 29*time.Second || d > 33*time.Second {
			t.Errorf("after %v", d)
		}
		if floor, _ := s.tally(g); floor != 0 {
			t.Errorf("floor %d", floor)
		}
	})
}

// A partition that has to go to another member is released once nothing of it is leased.
func TestAPartitionIsReleased(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 1)
		ref, b := topic.Ref(0), s.nodes[n1]
		g := s.group(topic, "billing", nil)
		s.log.Append(ref, "a", "b", "c")
		m1, m2 := s.join(g, "m1"), s.join(g, "m2")
		b.takes(t, ref, m1, 2, 0, "0/1", "1/1")
		s.alter(g, func(g *cluster.Group) { g.Owner(0).Next, g.Owner(0).Notice = "m2", g.Modified })
		b.takes(t, ref, m1, 1, time.Second)
		b.acks(t, ref, m1, 0)
		if s.released() > 0 {
			t.Error("released with a lease in hand")
		}
		s.mu.Lock()
		s.down = true
		s.mu.Unlock()
		var wg sync.WaitGroup
		wg.Go(func() { b.acks(t, ref, m1, 1) })
		time.Sleep(time.Second)
		s.mu.Lock()
		s.down = false
		s.mu.Unlock()
		wg.Wait()
		time.Sleep(time.Second)
		if s.released() == 0 {
			t.Fatal("not released")
		}
		b.takes(t, ref, m2, 3, 0, "2/1")
		b.acks(t, ref, m2, 2)
	})
}

// A notice is taken back and given again while nobody knows what became of the first release:
// to say that one again does not keep the second from being said.
func TestAPartitionIsReleasedAfterAnotherNotice(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 1)
		ref, b := topic.Ref(0), s.nodes[n1]
		g := s.group(topic, "billing", nil)
		s.log.Append(ref, "a", "b")
		m1, m2 := s.join(g, "m1"), s.join(g, "m2")
		b.takes(t, ref, m1, 1, 0, "0/1")
		b.acks(t, ref, m1, 0)
		s.set(func(s *stage) { s.delay, s.down = time.Second, true })
		notice := func(next string) {
			s.alter(g, func(g *cluster.Group) {
				if g.Owner(0).Next, g.Owner(0).Notice = next, 0; next != "" {
					g.Owner(0).Notice = g.Modified
				}
			})
			time.Sleep(100 * time.Millisecond)
		}
		notice("m2")
		notice("")
		notice("m2")
		time.Sleep(2 * time.Second)
		s.set(func(s *stage) { s.delay, s.down = 0, false })
		time.Sleep(5 * time.Second)
		b.takes(t, ref, m2, 1, 0, "1/1")
		b.acks(t, ref, m2, 1)
	})
}

func TestAResetWhileRecordsAreLeased(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 1)
		ref, b := topic.Ref(0), s.nodes[n1]
		g := s.group(topic, "billing", nil)
		s.log.Append(ref, "a", "b", "c", "d")
		m := s.join(g, "m1")
		b.takes(t, ref, m, 4, 0, "0/1", "1/1", "2/1", "3/1")
		s.mu.Lock()
		s.delay = 50 * time.Millisecond
		s.mu.Unlock()
		var wg sync.WaitGroup
		wg.Go(func() {
			if stale, err := b.settle(t, m, rpc.SettleOf{Partition: ref, Through: -1, Ack: []ident.Offset{0, 1}}); !fault.Is(err, fault.UnknownOutcome) {
				t.Errorf("%v, %v", stale, err)
			}
		})
		synctest.Wait()
		s.reset(g, 2)
		wg.Wait()
		b.takes(t, ref, m, 4, 0, "2/1", "3/1")
		b.acks(t, ref, m, 2, 3)
		if floor, done := s.tally(g); floor != 4 || len(done) != 2 {
			t.Errorf("floor %d, %v", floor, done)
		}
		if all, err := b.RecordStatus(t.Context(), rpc.RecordStatusOf{Partition: ref, Offset: 0}); err != nil || all[0].State != rpc.Skipped {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

// A commit of which nobody knows what became is repeated, and answered once.
func TestAnUnknownCommitIsRepeated(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 1)
		ref, b := topic.Ref(0), s.nodes[n1]
		g := s.group(topic, "billing", nil)
		s.log.Append(ref, "a", "b")
		m := s.join(g, "m1")
		b.takes(t, ref, m, 2, 0, "0/1", "1/1")
		s.mu.Lock()
		s.deaf = true
		s.mu.Unlock()
		time.AfterFunc(3*time.Second, func() { s.mu.Lock(); s.deaf = false; s.mu.Unlock() })
		began := time.Now()
		b.acks(t, ref, m, 0, 1)
		if d := time.Since(began); d < 3*time.Second || d > 5*time.Second {
			t.Errorf("answered after %v", d)
		}
		if floor, _ := s.tally(g); floor != 2 {
			t.Errorf("floor %d", floor)
		}
		s.mu.Lock()
		s.down = true
		s.mu.Unlock()
		s.log.Append(ref, "c")
		b.takes(t, ref, m, 1, 0, "2/1")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		done, err := b.Settle(ctx, rpc.Settle{MemberLife: m, Of: []rpc.SettleOf{{Partition: ref, Through: 2}}})
		if err != nil || !fault.Is(done.Of[0].Err, fault.UnknownOutcome) {
			t.Errorf("%+v, %v", done, err)
		}
	})
}

// All acknowledgements of a moment go into one commit: the first at once, then at most one
// every 15 ms.
func TestCommitsAreFewAndFull(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 4)
		b := s.nodes[n1]
		g := s.group(topic, "billing", func(s *cluster.GroupSettings) { s.MaxInFlight = 1024 })
		m := s.join(g, "m1")
		var wg sync.WaitGroup
		began := time.Now()
		for p := range 4 {
			ref := topic.Ref(ident.Index(p))
			for range 100 {
				s.log.Append(ref, "a", "b")
			}
			leases, err := b.take(t, ref, m, 200, 0)
			if err != nil || len(leases) != 200 {
				t.Fatal(len(leases), err)
			}
			for i := range 200 {
				wg.Go(func() {
					time.Sleep(time.Duration(i) * time.Millisecond)
					b.acks(t, ref, m, ident.Offset(i))
				})
			}
		}
		wg.Wait()
		took := time.Since(began)
		s.mu.Lock()
		defer s.mu.Unlock()
		if most := int(took/commitEvery) + 1; len(s.commits) > most || len(s.commits) < 10 {
			t.Errorf("%d commits in %v", len(s.commits), took)
		}
		for i := 1; i < len(s.commits); i++ {
			if d := s.commits[i].Sub(s.commits[i-1]); d < commitEvery {
				t.Errorf("two commits %v apart", d)
			}
		}
	})
}

// A commit is bounded, and what does not fit goes into the next one.
func TestACommitIsBounded(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 8)
		b := s.nodes[n1]
		var wg sync.WaitGroup
		for n := range 12 {
			g := s.group(topic, fmt.Sprint("g", n), func(s *cluster.GroupSettings) { s.MaxInFlight = 1024 })
			m := s.join(g, "m1")
			for p := range 8 {
				ref := topic.Ref(ident.Index(p))
				if n == 0 {
					for range 100 {
						s.log.Append(ref, "a", "b")
					}
				}
				if leases, err := b.take(t, ref, m, 200, 0); err != nil || len(leases) != 200 {
					t.Fatal(len(leases), err)
				}
				wg.Go(func() {
					var odd []ident.Offset // no two of which make a span
					for o := ident.Offset(1); o < 200; o += 2 {
						odd = append(odd, o)
					}
					b.acks(t, ref, m, odd...)
				})
			}
		}
		wg.Wait()
		if n := len(s.commits); n < 4 || n > 40 || s.largest > cluster.MaxCommitBytes-100 || s.largest < cluster.MaxCommitBytes/2 {
			t.Errorf("%d commits, the largest of %d bytes", n, s.largest)
		}
	})
}

// Groups without members cost nothing: no goroutine, no machine, no read of progress.
func TestGroupsWithoutMembersCostNothing(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 4)
		s.mu.Lock()
		var all []*cluster.Group
		for i := range 10_000 {
			g := &cluster.Group{ID: ident.GroupID{1, byte(i), byte(i >> 8)}, Topic: topic.ID, Name: fmt.Sprint("g", i), Settings: cluster.GroupSettings{Mode: cluster.Shared, MaxInFlight: 9, MaxDeliveries: 9, Lease: time.Second}, Modified: s.snap.Index + 1}
			s.progress[g.ID] = map[ident.Index]*tally{0: newTally(0), 1: newTally(0), 2: newTally(0), 3: newTally(0)}
			all = append(all, g)
		}
		s.changeLocked(func(snap *cluster.Snapshot) { snap.Groups[topic.ID] = snap.Groups[topic.ID].With(all...) })
		s.mu.Unlock()
		for range 20 {
			s.log.Append(topic.Ref(0), "a")
			time.Sleep(time.Second)
		}
		idle := func() {
			t.Helper()
			p, _ := s.nodes[n1].post(topic.Ref(0))
			p.mu.Lock()
			defer p.mu.Unlock()
			if len(p.units) > 0 || p.watching || p.loading {
				t.Errorf("%d units; watched: %v, loading: %v", len(p.units), p.watching, p.loading)
			}
		}
		if idle(); s.loaded() > 0 {
			t.Errorf("%d reads of progress", s.loaded())
		}
		// With its first member one of them is at work, and after its last one not any more.
		m := s.join(all[7], "m1")
		s.nodes[n1].takes(t, topic.Ref(0), m, 1, 0, "0/1")
		s.lapse(all[7], "m1", "")
		time.Sleep(time.Minute)
		idle()
		// State that is asked for is read, many groups at once, and not kept.
		began := s.loaded()
		status, err := s.nodes[n1].RecordStatus(t.Context(), rpc.RecordStatusOf{Partition: topic.Ref(0), Offset: 3})
		if err != nil || len(status) != 10_000 || status[0].State != rpc.Received {
			t.Errorf("%d, %v", len(status), err)
		}
		if n := s.loaded() - began; n != 40 {
			t.Errorf("%d reads of progress", n)
		}
	})
}

func TestStandings(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 2)
		ref, b := topic.Ref(0), s.nodes[n1]
		idle, busy := s.group(topic, "idle", nil), s.group(topic, "busy", nil)
		s.log.Append(ref, "a", "b", "c", "d")
		m := s.join(busy, "m1")
		b.takes(t, ref, m, 3, 0, "0/1", "1/1", "2/1")
		b.acks(t, ref, m, 0)
		s.lead(topic.Ref(1), n2)
		all, err := b.Standings(t.Context(), rpc.StandingsOf{Groups: []ident.GroupID{idle.ID, busy.ID, {9}}, Partitions: []ident.Partition{ref, topic.Ref(1)}})
		if err != nil || len(all) != 2 {
			t.Fatalf("%+v, %v", all, err)
		}
		slices.SortFunc(all, func(a, b rpc.GroupStanding) int { return a.InFlight - b.InFlight })
		if s := all[0]; s.Group != idle.ID || s.Committed != 0 || s.Lag != 4 || s.End != 4 || s.Partition != ref {
			t.Errorf("%+v", s)
		}
		if s := all[1]; s.Group != busy.ID || s.Committed != 1 || s.Lag != 3 || s.InFlight != 2 || s.Oldest != time.UnixMilli(1) {
			t.Errorf("%+v", s)
		}
		status, err := b.RecordStatus(t.Context(), rpc.RecordStatusOf{Partition: ref, Offset: 1})
		if err != nil || len(status) != 2 {
			t.Fatal(status, err)
		}
		for _, st := range status {
			if want := map[ident.GroupID]rpc.RecordState{idle.ID: rpc.Received, busy.ID: rpc.InFlight}[st.Group]; st.State != want {
				t.Errorf("%+v", st)
			}
		}
		if _, err := b.RecordStatus(t.Context(), rpc.RecordStatusOf{Partition: ref, Offset: 4}); !fault.Is(err, fault.OffsetNotFound) {
			t.Error(err)
		}
		if _, err := s.nodes[n2].RecordStatus(t.Context(), rpc.RecordStatusOf{Partition: ref}); !fault.Is(err, fault.LeaderUnavailable) {
			t.Error(err)
		}
	})
}

// What retention takes is over, and the floor passes it.
func TestRetentionComesFirst(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 1)
		ref, b := topic.Ref(0), s.nodes[n1]
		g := s.group(topic, "billing", nil)
		for range 10 {
			s.log.Append(ref, "a")
		}
		m := s.join(g, "m1")
		b.takes(t, ref, m, 2, 0, "0/1", "1/1")
		s.log.Retain(ref, 6)
		b.takes(t, ref, m, 2, 0, "6/1", "7/1")
		if stale, err := b.settle(t, m, rpc.SettleOf{Partition: ref, Through: -1, Ack: []ident.Offset{0, 6, 7}}); err != nil || stale[0] != "offset-expired" {
			t.Errorf("%v, %v", stale, err)
		}
		if floor, done := s.tally(g); floor != 8 || done[3] != "expired" {
			t.Errorf("floor %d, %v", floor, done)
		}
	})
}

// Nobody moves the floor of a group without members, and what is told of it is true all the
// same: it stands at the log's start, and what it lost by retention is said. Whoever joins
// begins there.
func TestRetentionOvertakesAGroupWithoutMembers(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 1)
		ref, b := topic.Ref(0), s.nodes[n1]
		g := s.group(topic, "billing", nil)
		for range 10 {
			s.log.Append(ref, "a")
		}
		m := s.join(g, "m1")
		b.takes(t, ref, m, 4, 0, "0/1", "1/1", "2/1", "3/1")
		b.acks(t, ref, m, 0, 1, 3)
		s.lapse(g, "m1", "")
		s.log.Retain(ref, 6)
		stands := func() rpc.GroupStanding {
			all, err := b.Standings(t.Context(), rpc.StandingsOf{Groups: []ident.GroupID{g.ID}, Partitions: []ident.Partition{ref}})
			if err != nil || len(all) != 1 {
				t.Fatal(all, err)
			}
			return all[0]
		}
		want := rpc.GroupStanding{Group: g.ID, Partition: ref, Committed: 6, End: 10, Lag: 4, Expired: 3}
		if got := stands(); got != want {
			t.Fatalf("%+v", got)
		}
		for _, o := range []ident.Offset{2, 5} {
			if st, err := b.RecordStatus(t.Context(), rpc.RecordStatusOf{Partition: ref, Offset: o}); err != nil || st[0].State != rpc.Expired {
				t.Error(st, err)
			}
		}
		m = s.join(g, "m2")
		b.takes(t, ref, m, 1, time.Minute, "6/1")
		want.InFlight, want.Oldest = 1, time.UnixMilli(7)
		if got := stands(); got != want {
			t.Fatalf("%+v", got)
		}
	})
}

// An answer holds no more than was asked for, but one record however large; what does not
// go in is no delivery.
func TestAnswersAreBounded(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 2)
		b := s.nodes[n1]
		g := s.group(topic, "billing", nil)
		for p := range 2 {
			for range 30 {
				s.log.AppendRecord(topic.Ref(ident.Index(p)), &record.Record{ContentType: "x/y", Value: make([]byte, 100<<10)})
			}
		}
		m := s.join(g, "m1")
		refs := []ident.Partition{topic.Ref(0), topic.Ref(1)}
		seen := map[string]int{}
		for range 30 {
			taken, err := b.Take(t.Context(), rpc.Take{MemberLife: m, Partitions: refs, Limit: 50, MaxBytes: 350 << 10})
			if err != nil {
				t.Fatal(err)
			}
			n, bytes := 0, 0
			for _, of := range taken.Of {
				holds(t, of)
				n, bytes = n+len(of.Leases), bytes+len(of.Batches)
				for _, l := range of.Leases {
					if seen[fmt.Sprint(of.Partition, l.Offset)]++; l.Delivery != 1 {
						t.Errorf("delivery %d", l.Delivery)
					}
				}
			}
			if bytes > 500<<10 || taken.More != (len(seen) < 60) {
				t.Errorf("%d records, %d bytes, more: %v of %d", n, bytes, taken.More, len(seen))
			}
		}
		if len(seen) != 60 {
			t.Errorf("%d records", len(seen))
		}
		small := s.group(topic, "small", nil)
		m = s.join(small, "m1")
		b.takes(t, refs[0], m, 1, 0, "0/1")
		taken, err := b.Take(t.Context(), rpc.Take{MemberLife: m, Partitions: refs, Limit: 5, MaxBytes: 1})
		if err != nil || len(taken.Of[0].Leases)+len(taken.Of[1].Leases) != 1 || !taken.More {
			t.Errorf("%+v, %v", taken.Of[0].Leases, err)
		}
	})
}

// Who takes little at a time gets from all partitions, however much one of them has.
func TestPartitionsTakeTurns(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 3)
		m := s.join(s.group(topic, "billing", nil), "m1")
		var refs []ident.Partition
		for p := range 3 {
			refs = append(refs, topic.Ref(ident.Index(p)))
			s.log.Append(refs[p], make([]string, 100)...)
		}
		got := map[ident.Index]int{}
		for range 9 {
			taken, err := s.nodes[n1].Take(t.Context(), rpc.Take{MemberLife: m, Partitions: refs, Limit: 4, MaxBytes: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			for _, of := range taken.Of {
				got[of.Partition.Index] += len(of.Leases)
			}
		}
		if !maps.Equal(got, map[ident.Index]int{0: 12, 1: 12, 2: 12}) {
			t.Errorf("%v", got)
		}
	})
}

// All partitions that a Take names together give a member no more than max_in_flight.
func TestMaxInFlightHoldsOverAllPartitions(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 3)
		b := s.nodes[n1]
		g := s.group(topic, "billing", func(s *cluster.GroupSettings) { s.MaxInFlight = 4 })
		m := s.join(g, "m1")
		var refs []ident.Partition
		for p := range 3 {
			refs = append(refs, topic.Ref(ident.Index(p)))
			s.log.Append(refs[p], "a", "b", "c")
		}
		taken, err := b.Take(t.Context(), rpc.Take{MemberLife: m, Partitions: refs, Limit: 50, MaxBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, of := range taken.Of {
			n += len(of.Leases)
		}
		if n != 4 {
			t.Errorf("%d records", n)
		}
		// Who waits, on all of them, hears nothing before there is room for another.
		began := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			got, err := b.Take(t.Context(), rpc.Take{MemberLife: m, Partitions: refs, Wait: 5 * time.Second})
			if err != nil || !got.More || time.Since(began) < time.Second || time.Since(began) > time.Second {
				t.Errorf("%+v, %v after %v", got, err, time.Since(began))
			}
		})
		time.Sleep(time.Second)
		for _, of := range taken.Of {
			if len(of.Leases) > 0 {
				if _, err := b.settle(t, m, rpc.SettleOf{Partition: of.Partition, Ack: []ident.Offset{of.Leases[0].Offset}, Through: -1}); err != nil {
					t.Error(err)
				}
				break
			}
		}
		wg.Wait()
		if got, err := b.Take(t.Context(), rpc.Take{MemberLife: m, Partitions: []ident.Partition{topic.Ref(0)}}); err != nil || got.More != (len(taken.Of[0].Leases) < 3) {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// Of a large batch of which little is leased no more than that is in the answer.
func TestABatchIsNotGivenWholeForOneRecord(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 1)
		ref, b := topic.Ref(0), s.nodes[n1]
		m := s.join(s.group(topic, "billing", nil), "m1")
		keys := make([]string, 4000)
		for i := range keys {
			keys[i] = fmt.Sprint("k", i)
		}
		s.log.Append(ref, keys...)
		for i := range 20 {
			taken, err := b.Take(t.Context(), rpc.Take{MemberLife: m, Partitions: []ident.Partition{ref}, Limit: 3, MaxBytes: 1 << 20})
			if err != nil || len(taken.Of[0].Leases) != 3 || len(taken.Of[0].Batches) > 4<<10 {
				t.Fatalf("%d leases, %d bytes, %v", len(taken.Of[0].Leases), len(taken.Of[0].Batches), err)
			}
			holds(t, taken.Of[0])
			batch, rest, err := record.Cut(taken.Of[0].Batches)
			if err != nil || len(rest) > 0 || batch.Verify() != nil || batch.Header().Entries != 3 || taken.Of[0].Leases[0].Offset != ident.Offset(3*i) {
				t.Fatalf("%+v, %v", batch.Header(), err)
			}
		}
		taken, err := b.Take(t.Context(), rpc.Take{MemberLife: m, Partitions: []ident.Partition{ref}, Limit: 1000, MaxBytes: 1 << 20})
		if err != nil || len(taken.Of[0].Leases) != 196 {
			t.Fatalf("%d leases, %v", len(taken.Of[0].Leases), err)
		}
		holds(t, taken.Of[0])
	})
}

// Groups that go, and others of their names, are noticed among many that stay.
func TestGroupsThatGo(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 2)
		ref, b := topic.Ref(0), s.nodes[n1]
		s.log.Append(ref, "a")
		var lives []cluster.MemberLife
		var groups []*cluster.Group
		for i := range 5 {
			groups = append(groups, s.group(topic, fmt.Sprint("g", i), nil))
			lives = append(lives, s.join(groups[i], "m1"))
			b.takes(t, ref, lives[i], 1, 0, "0/1")
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := b.take(t, ref, lives[1], 1, time.Minute); !fault.Is(err, fault.GroupNotFound) {
				t.Error(err)
			}
		})
		synctest.Wait()
		s.set(func(s *stage) {
			s.changeLocked(func(snap *cluster.Snapshot) { // one goes and another comes
				more := &cluster.Group{ID: ident.GroupID{77}, Topic: topic.ID, Name: "g9", Settings: groups[0].Settings, Modified: snap.Index}
				s.progress[more.ID] = map[ident.Index]*tally{0: newTally(0), 1: newTally(0)}
				snap.Groups[topic.ID] = snap.Groups[topic.ID].Without("g1").With(more)
			})
		})
		wg.Wait()
		s.set(func(s *stage) {
			s.changeLocked(func(snap *cluster.Snapshot) { // another life of the same name
				again := &cluster.Group{ID: ident.GroupID{78}, Topic: topic.ID, Name: "g2", Settings: groups[0].Settings, Modified: snap.Index}
				s.progress[again.ID] = map[ident.Index]*tally{0: newTally(0), 1: newTally(0)}
				snap.Groups[topic.ID] = snap.Groups[topic.ID].With(again)
			})
		})
		if _, err := b.take(t, ref, lives[2], 1, 0); !fault.Is(err, fault.Fenced) {
			t.Error(err)
		}
		for i, want := range []int{1, 0, 0, 1, 1} {
			all, err := b.Standings(t.Context(), rpc.StandingsOf{Groups: []ident.GroupID{groups[i].ID}, Partitions: []ident.Partition{ref}})
			if err != nil || len(all) != want {
				t.Errorf("%d: %+v, %v", i, all, err)
			}
		}
		s.set(func(s *stage) { s.changeLocked(func(snap *cluster.Snapshot) { delete(snap.Groups, topic.ID) }) })
		if p, err := b.post(ref); err != nil || len(p.atWork()) > 0 {
			t.Error(err, "groups are at work that are not there")
		}
	})
}

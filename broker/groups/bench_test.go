package groups

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// BenchmarkAcks has members of a group acknowledge as fast as they are answered, by a
// coordinator that takes 5 ms for a commit: what matters is how few commits that takes.
func BenchmarkAcks(b *testing.B) {
	for _, each := range []int{1, 10, 100} {
		b.Run(fmt.Sprint(each, "a call"), func(b *testing.B) { acks(b, each) })
	}
}

func acks(b *testing.B, each int) {
	const partitions, hands = 16, 64
	s := newStage()
	s.delay = 5 * time.Millisecond
	n := s.node(n1)
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = n.Run(ctx) })
	defer running.Wait()
	defer cancel()
	topic := s.topic("orders", partitions)
	g := s.group(topic, "billing", func(s *cluster.GroupSettings) { s.Mode, s.MaxInFlight = cluster.Shared, 1024 })
	var keys [200]string
	for p := range partitions {
		for range (b.N/partitions+4096)/len(keys) + 1 {
			s.log.Append(topic.Ref(ident.Index(p)), keys[:]...)
		}
	}
	var done atomic.Int64
	var members sync.WaitGroup
	b.ResetTimer()
	began := time.Now()
	for h := range hands {
		m := s.join(g, fmt.Sprint("m", h))
		ref := topic.Ref(ident.Index(h % partitions))
		members.Go(func() {
			for done.Load() < int64(b.N) {
				taken, err := n.Take(ctx, rpc.Take{MemberLife: m, Partitions: []ident.Partition{ref}, Limit: 100, MaxBytes: 1 << 20, Wait: time.Second})
				if err != nil || taken.Of[0].Err != nil {
					b.Error(err, taken)
					return
				}
				var calls sync.WaitGroup
				for leases := taken.Of[0].Leases; len(leases) > 0; {
					some := leases[:min(each, len(leases))]
					leases = leases[len(some):]
					calls.Go(func() {
						of := rpc.SettleOf{Partition: ref, Through: -1}
						for _, l := range some {
							of.Ack = append(of.Ack, l.Offset)
						}
						if _, err := n.Settle(ctx, rpc.Settle{MemberLife: m, Of: []rpc.SettleOf{of}}); err != nil {
							b.Error(err)
						}
						done.Add(int64(len(some)))
					})
				}
				calls.Wait()
			}
		})
	}
	members.Wait()
	took := time.Since(began).Seconds()
	s.mu.Lock()
	defer s.mu.Unlock()
	b.ReportMetric(float64(done.Load())/took, "acks/s")
	b.ReportMetric(float64(len(s.commits))/took, "commits/s")
	b.ReportMetric(float64(done.Load())/float64(len(s.commits)), "acks/commit")
}

// BenchmarkAChangeOfOneGroup is what a snapshot costs in which one of 10,000 groups with a
// member changed, on a topic of 16 partitions that this broker leads.
func BenchmarkAChangeOfOneGroup(b *testing.B) {
	s := newStage()
	n := s.node(n1)
	topic := s.topic("orders", 16)
	var all []*cluster.Group
	for i := range 10_000 {
		all = append(all, &cluster.Group{
			ID: ident.GroupID{1, byte(i), byte(i >> 8)}, Topic: topic.ID, Name: fmt.Sprint("g", i), Modified: s.snap.Index + 1,
			Members: []cluster.Member{{ID: "m", Epoch: 1}},
		})
	}
	s.set(func(s *stage) {
		s.changeLocked(func(snap *cluster.Snapshot) { snap.Groups[topic.ID] = snap.Groups[topic.ID].With(all...) })
	})
	for b.Loop() {
		next := *n.known()
		next.Index++
		g := *all[7]
		g.Modified = next.Index
		next.Groups = map[ident.TopicID]*cluster.GroupTable{topic.ID: next.Groups[topic.ID].With(&g)}
		n.Apply(&next)
	}
}

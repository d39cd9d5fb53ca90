package state_test

import (
	"fmt"
	"testing"

	"tidewire/coordinator/state"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// large is a cluster of three nodes with 5,000 partitions on each of them.
func large(t testing.TB, topics int) (m *state.Machine, do func(cluster.Change) cluster.Answer) {
	m = state.New()
	do = func(c cluster.Change) cluster.Answer {
		index := m.Index() + 1
		b := mustEncode(t, &state.Command{Request: state.RequestID{byte(index >> 16), byte(index >> 8), byte(index)}, Change: c})
		a, err := m.Apply(index, b)
		if err != nil || a.Refusal != nil {
			t.Fatal(a.Refusal, err)
		}
		m.Snapshot() // as the feed does, so that maps are copied with the next change
		return a
	}
	for id := byte(1); id <= 3; id++ {
		a := do(cluster.Change{Register: &cluster.Register{Node: cluster.Node{ID: ident.NodeID{id}, Name: fmt.Sprint("n", id), Roles: []string{"broker"}}}})
		do(cluster.Change{Activate: &cluster.Activate{Node: ident.NodeID{id}, Epoch: a.Epoch}})
	}
	for i := range topics {
		do(cluster.Change{Create: &cluster.Create{ID: ident.TopicID{1, byte(i >> 8), byte(i)}, Spec: cluster.TopicSpec{Name: fmt.Sprint("t", i), Partitions: new(5000 / topics)}}})
	}
	return m, do
}

// BenchmarkDeath is one node's end and its return, 5,000 partitions each time.
func BenchmarkDeath(b *testing.B) {
	for _, topics := range []int{20, 5000} {
		b.Run(fmt.Sprint(topics, "topics"), func(b *testing.B) {
			m, do := large(b, topics)
			last := ident.BrokerEpoch(5)
			for b.Loop() {
				do(cluster.Change{Expire: &cluster.Expire{Lives: []cluster.Life{{Node: ident.NodeID{3}, Epoch: last}}}})
				b.StopTimer()
				last = do(cluster.Change{Register: &cluster.Register{Last: last, Node: *m.Snapshot().Nodes[ident.NodeID{3}]}}).Epoch
				do(cluster.Change{Activate: &cluster.Activate{Node: ident.NodeID{3}, Epoch: last}})
				for k := range byte(2) {
					admit(m, do, ident.NodeID{k + 1}, 5000)
				}
				b.StartTimer()
			}
		})
	}
}

// admit lets every replica into the ISRs that a node leads, most partitions at a time.
func admit(m *state.Machine, do func(cluster.Change) cluster.Answer, leader ident.NodeID, most int) (taken int) {
	s := m.Snapshot()
	c := &cluster.Insync{Leader: s.Nodes[leader].Life()}
	flush := func() {
		if len(c.Of) > 0 {
			for _, ok := range do(cluster.Change{Insync: c}).Taken {
				if ok {
					taken++
				}
			}
		}
		c = &cluster.Insync{Leader: c.Leader}
	}
	for _, t := range s.Topics {
		for k := range t.Partitions {
			p := &t.Partitions[k]
			if p.Leader != leader || len(p.ISR) == len(p.Replicas) {
				continue
			}
			o := cluster.InsyncOf{Partition: t.Ref(p.Index), Epoch: p.LeaderEpoch, Version: p.Version}
			for _, n := range p.Replicas {
				o.ISR = append(o.ISR, s.Nodes[n].Life())
			}
			c.Of = append(c.Of, o)
			if len(c.Of) == min(most, cluster.MaxParts) {
				flush()
			}
		}
	}
	flush()
	return taken
}

// BenchmarkInsync is 300 partitions' ISRs in one change.
func BenchmarkInsync(b *testing.B) {
	m, do := large(b, 5000)
	one := ident.NodeID{1}
	for b.Loop() {
		b.StopTimer()
		s := m.Snapshot()
		c := &cluster.Insync{Leader: s.Nodes[one].Life()}
		for i := range 5000 {
			t := s.Topics[fmt.Sprint("t", i)]
			if p := &t.Partitions[0]; p.Leader == one && len(c.Of) < 300 {
				o := cluster.InsyncOf{Partition: t.Ref(0), Epoch: p.LeaderEpoch, Version: p.Version}
				for _, n := range p.Replicas {
					o.ISR = append(o.ISR, s.Nodes[n].Life())
				}
				c.Of = append(c.Of, o)
			}
		}
		b.StartTimer()
		do(cluster.Change{Insync: c})
	}
}

// The largest changes that the bounds allow fit into a command.
func TestTheLargestChangesFit(t *testing.T) {
	life := cluster.Life{Node: ident.NodeID{1}, Epoch: 1 << 50}
	ref := ident.Partition{Topic: ident.TopicID{1}, Index: 1 << 31}
	insync, unfit := &cluster.Insync{Leader: life}, &cluster.Unfit{Life: life}
	expire, elect, move := &cluster.Expire{}, &cluster.Elect{}, &cluster.Move{}
	for range cluster.MaxParts {
		insync.Of = append(insync.Of, cluster.InsyncOf{Partition: ref, Epoch: 1 << 31, Version: 1 << 50, ISR: []cluster.Life{life, life, life, life, life}})
		elect.Of = append(elect.Of, cluster.ElectOf{Partition: ref, Version: 1 << 50, Leader: life.Node, Takeover: true})
		move.Of = append(move.Of, cluster.MoveOf{Partition: ref, Version: 1 << 50, Add: []ident.NodeID{life.Node, life.Node}, Remove: []ident.NodeID{life.Node, life.Node}})
	}
	for range cluster.MaxNodes {
		expire.Lives = append(expire.Lives, life)
	}
	for range cluster.MaxUnfit {
		unfit.Partitions = append(unfit.Partitions, ref)
	}
	for _, c := range []cluster.Change{
		{Insync: insync},
		{Elect: elect},
		{Move: move},
		{Expire: expire},
		{Unfit: unfit},
		{Register: &cluster.Register{Unfit: unfit.Partitions}},
	} {
		if _, err := state.Encode(&state.Command{Change: c}); err != nil {
			t.Error(c.Kind(), err)
		}
	}

	// One more is refused and changes nothing.
	m, _ := large(t, 20)
	insync.Of = append(insync.Of, insync.Of[0])
	elect.Of = append(elect.Of, elect.Of[0])
	move.Of = append(move.Of, move.Of[0])
	expire.Lives = append(expire.Lives, life)
	unfit.Partitions = append(unfit.Partitions, ref)
	for i, c := range []cluster.Change{{Insync: insync}, {Elect: elect}, {Move: move}, {Expire: expire}, {Unfit: unfit}} {
		a, err := m.Apply(m.Index()+1, mustEncode(t, &state.Command{Request: state.RequestID{1, 2, 3, byte(i)}, Change: c}))
		if err != nil || a.Refusal == nil || a.Refusal.Code != "invalid" {
			t.Error(c.Kind(), a.Refusal, err)
		}
	}
}

func TestTheNumberOfNodesHasABound(t *testing.T) {
	m := state.New()
	for i := range cluster.MaxNodes + 1 {
		a, err := m.Apply(uint64(i+1), mustEncode(t, &state.Command{Request: state.RequestID{byte(i >> 8), byte(i), 1}, Change: cluster.Change{
			Register: &cluster.Register{Node: cluster.Node{ID: ident.NodeID{1, byte(i >> 8), byte(i)}, Name: fmt.Sprint(i), Roles: []string{"broker"}}},
		}}))
		if full := i == cluster.MaxNodes; err != nil || full != (a.Refusal != nil) {
			t.Fatal(i, a.Refusal, err)
		}
	}
}

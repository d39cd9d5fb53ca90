package state_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"tidewire/coordinator/layout"
	"tidewire/coordinator/state"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// wellFormed holds after every command.
func wellFormed(t *rapid.T, s *cluster.Snapshot) {
	if len(s.Topics) != len(s.ByID) {
		t.Fatal("topics by name and by id differ")
	}
	for name, topic := range s.Topics {
		if topic.Name != name || s.ByID[topic.ID] != topic || s.Deleted[topic.ID] != 0 {
			t.Fatalf("topic %s is filed wrongly", name)
		}
		if topic.Modified == 0 || topic.Modified > s.Index {
			t.Fatalf("topic %s was modified at %d of %d", name, topic.Modified, s.Index)
		}
		var ranges []ident.HashRange
		for k := range topic.Partitions {
			p := &topic.Partitions[k]
			ranges = append(ranges, p.Range)
			if wrong := partitionFault(s, topic, p); wrong != "" {
				t.Fatalf("topic %s: %s: %+v", name, wrong, p)
			}
		}
		if err := layout.Check(ranges); err != nil {
			t.Fatal(err)
		}
	}
}

func partitionFault(s *cluster.Snapshot, topic *cluster.Topic, p *cluster.Partition) string {
	is := func(n ident.NodeID) bool { return slices.Contains(p.Replicas, n) }
	all := func(ids []ident.NodeID, holds func(ident.NodeID) bool) bool {
		return !slices.ContainsFunc(ids, func(n ident.NodeID) bool { return !holds(n) })
	}
	switch {
	case p.LeaderEpoch == 0 || p.Version == 0 || p.Unclean > p.LeaderEpoch+1 || p.Unclean > p.LeaderEpoch && p.Leader != (ident.NodeID{}) || p.Unclamped > p.LeaderEpoch+1:
		return "an epoch or version that cannot be"
	case len(p.Replicas) == 0 || len(p.Replicas) > topic.Settings.Replicas+len(p.Removing):
		return "more or fewer replicas than asked for"
	case len(p.ISR) == 0:
		return "nobody is in sync"
	case !all(p.ISR, is) || !all(p.ELR, is) || !all(p.Adding, is) || !all(p.Removing, is):
		return "somebody holds no replica"
	case slices.ContainsFunc(p.ELR, func(n ident.NodeID) bool { return slices.Contains(p.ISR, n) }):
		return "ISR and ELR overlap"
	case len(p.ELR) > 0 && len(p.ISR) >= topic.Settings.MinInsync:
		return "an ELR beside an ISR that is large enough"
	case slices.ContainsFunc(p.Adding, func(n ident.NodeID) bool { return slices.Contains(p.Removing, n) }):
		return "somebody comes and goes"
	}
	for i, n := range p.Replicas {
		if slices.Contains(p.Replicas[:i], n) {
			return "a replica twice"
		}
	}
	if p.Leader == (ident.NodeID{}) {
		return ""
	}
	leader := s.Nodes[p.Leader]
	switch {
	case !slices.Contains(p.ISR, p.Leader):
		return "the leader is not in sync"
	case leader == nil || !leader.Serves() || !leader.Broker():
		return "the leader is not alive"
	case !all(p.ISR, func(n ident.NodeID) bool { return s.Nodes[n] != nil && !s.Nodes[n].Over() && s.Nodes[n].Broker() }):
		return "a leader has to wait for somebody who is dead"
	}
	return ""
}

// steps says what is wrong with how a partition changed.
func stepFault(s *cluster.Snapshot, kind string, topic *cluster.Topic, was, now *cluster.Partition) string {
	changed := was.Leader != now.Leader || was.LeaderEpoch != now.LeaderEpoch || was.Unclean != now.Unclean || was.Unclamped != now.Unclamped || was.Purged != now.Purged ||
		!slices.Equal(was.Replicas, now.Replicas) || !slices.Equal(was.ISR, now.ISR) || !slices.Equal(was.ELR, now.ELR) ||
		!slices.Equal(was.Adding, now.Adding) || !slices.Equal(was.Removing, now.Removing)
	electable := slices.Contains(was.ISR, now.Leader) || slices.Contains(was.ELR, now.Leader) ||
		kind == "insync" && slices.Contains(now.ISR, now.Leader)
	switch {
	case now.LeaderEpoch < was.LeaderEpoch || now.Version < was.Version || now.Unclean < was.Unclean:
		return "an epoch or version fell"
	case changed && now.Version != was.Version+1:
		return "changed in other than one version"
	case was.Leader != now.Leader && now.LeaderEpoch == was.LeaderEpoch:
		return "another leader in the same epoch"
	case was.Unclamped != 0 && now.Unclamped != was.Unclamped && kind != "clamp", now.Unclean != was.Unclean && now.Unclamped == 0:
		return "records were lost, and nobody has to clamp"
	case now.Purged != was.Purged && (was.Unclamped == 0 || now.Unclamped != 0 || now.Purged > was.Purged) && (kind != "purge" || now.Purged < was.Purged || was.Unclamped != 0):
		return "it begins elsewhere, and neither a purge nor a clamp says so"
	case now.Leader != (ident.NodeID{}) && !electable && (now.Unclean != now.LeaderEpoch || !topic.Settings.Unclean):
		return "a leader that was not electable"
	}
	return ""
}

// ghost is what really is on the disks of one partition's replicas, as far as the
// coordinator's decisions depend on it: how many rounds of records are committed, and how
// many of them each node holds.
type ghost struct {
	committed int
	holds     map[ident.NodeID]int
	hopeless  bool // the last one that had anything lost it, or may have
}

// Whatever happens, a partition's state stays well formed, changes in whole versions, and
// everybody who may be elected holds all that is committed.
func TestWhoeverMayBeElectedHoldsAllThatIsCommitted(t *testing.T) {
	elections, uncleans, elrs, moves, mended := 0, 0, 0, 0, 0
	kinds := clusterKinds()
	rapid.Check(t, func(t *rapid.T) {
		m, twin := state.New(), state.New()
		ghosts := map[ident.Partition]*ghost{}
		begin := opening()
		for i := range len(begin) + rapid.IntRange(80, 230).Draw(t, "commands") {
			was := m.Snapshot()
			var c *state.Command
			if i < len(begin) {
				c = begin[i]
			} else {
				c = drawCommand(t, m, byte(i+1), kinds)
			}
			b := mustEncode(t, c)
			index := uint64(i + 2)
			got := apply(t, m, index, b)
			if other := apply(t, twin, index, b); other != got {
				t.Fatalf("two machines answer\n%s\n%s", got, other)
			}
			now := m.Snapshot()
			wellFormed(t, now)
			for id, topic := range now.ByID {
				for k := range topic.Partitions {
					p := &topic.Partitions[k]
					before := p
					if old := was.ByID[id]; old != nil {
						before, _ = old.Partition(p.Index)
						if wrong := stepFault(now, c.Kind(), topic, before, p); wrong != "" {
							t.Fatalf("topic %s: %s:\n%+v\n%+v", topic.Name, wrong, before, p)
						}
					}
					g := ghosts[topic.Ref(p.Index)]
					if g == nil {
						g = &ghost{holds: map[ident.NodeID]int{}}
						ghosts[topic.Ref(p.Index)] = g
					}
					g.follow(was, now, c, topic, before, p)
					if wrong := g.fault(p); wrong != "" {
						t.Fatalf("topic %s: %s: %+v\n%+v\n%+v", topic.Name, wrong, g, before, p)
					}
					if p.LeaderEpoch > before.LeaderEpoch && slices.Contains(before.ELR, p.Leader) {
						elrs++
					}
					elections += int(p.LeaderEpoch - before.LeaderEpoch)
					uncleans += int(min(1, p.Unclean-before.Unclean))
					if len(before.Adding) > 0 && len(p.Adding) == 0 && c.Insync != nil {
						moves++
					}
					if len(before.Adding) > 0 && len(p.Adding) > 0 && c.Move != nil && p.Version != before.Version {
						mended++
					}
					// The leader commits another round where it may.
					if p.Leader != (ident.NodeID{}) && len(p.ISR) >= topic.Settings.MinInsync {
						g.committed++
						for _, n := range p.ISR {
							g.holds[n] = g.committed
						}
					}
				}
			}
		}
	})
	t.Logf("%d leader changes, %d of them unclean, %d out of the ELR, %d moves done, %d given what they lacked", elections, uncleans, elrs, moves, mended)
	if elections == 0 || uncleans == 0 || elrs == 0 || moves == 0 || mended == 0 {
		t.Fatal("the states that this is about were not reached")
	}
}

// opening is a cluster of four nodes and three topics, one replica of which has moved,
// and one moves and is to stay as well.
func opening() (all []*state.Command) {
	add := func(c cluster.Change) {
		all = append(all, &state.Command{Request: state.RequestID{2, byte(len(all))}, Change: c})
	}
	for id := byte(1); id <= 4; id++ {
		add(cluster.Change{Register: &cluster.Register{Node: cluster.Node{
			ID: ident.NodeID{id}, Name: fmt.Sprint("n", id), Storage: ident.StorageID{id}, Boot: "boot", Roles: []string{"broker"},
		}}})
		add(cluster.Change{Activate: &cluster.Activate{Node: ident.NodeID{id}, Epoch: ident.BrokerEpoch(len(all) + 1)}})
	}
	for i, unclean := range []bool{false, true} {
		add(cluster.Change{Create: &cluster.Create{ID: ident.TopicID{200, byte(i)}, Spec: cluster.TopicSpec{
			Name: string(rune('b' + i)), Partitions: new(2), SettingsPatch: cluster.SettingsPatch{Unclean: &unclean, Replicas: new(3)},
		}}})
	}
	add(cluster.Change{Create: &cluster.Create{ID: ident.TopicID{200, 2}, Spec: cluster.TopicSpec{
		Name: "e", Partitions: new(1), SettingsPatch: cluster.SettingsPatch{Replicas: new(1)},
	}}})
	// Chance seldom finds a move that lacks something, or brings one to its end.
	grows := ident.Partition{Topic: ident.TopicID{200, 2}}
	add(cluster.Change{Move: &cluster.Move{Of: []cluster.MoveOf{{Partition: grows, Version: 1, Add: []ident.NodeID{{2}}, Remove: []ident.NodeID{{1}}}}}})
	add(cluster.Change{Alter: &cluster.Alter{Name: "e", Patch: cluster.SettingsPatch{Replicas: new(2), MinInsync: new(2)}}})
	add(cluster.Change{Move: &cluster.Move{Of: []cluster.MoveOf{{Partition: grows, Version: 3, Add: []ident.NodeID{{1}}}}}})
	moved := ident.Partition{Topic: ident.TopicID{200}}
	add(cluster.Change{Move: &cluster.Move{Of: []cluster.MoveOf{{Partition: moved, Version: 1, Add: []ident.NodeID{{4}}, Remove: []ident.NodeID{{1}}}}}})
	life := func(id byte) cluster.Life {
		return cluster.Life{Node: ident.NodeID{id}, Epoch: ident.BrokerEpoch(2 * id)}
	}
	add(cluster.Change{Insync: &cluster.Insync{Leader: life(1), Of: []cluster.InsyncOf{
		{Partition: moved, Epoch: 1, Version: 2, ISR: []cluster.Life{life(1), life(2), life(3), life(4)}},
	}}})
	return all
}

// follow does to the disks what a command says or decides.
func (g *ghost) follow(was, now *cluster.Snapshot, c *state.Command, topic *cluster.Topic, before, p *cluster.Partition) {
	ref := topic.Ref(p.Index)
	lose := func(n ident.NodeID) {
		g.holds[n] = -1
		if slices.Contains(p.ISR, n) {
			g.hopeless = true // allowed for damage and reboots: nobody else has anything
			if len(p.ISR) > 1 || len(p.ELR) > 0 {
				g.hopeless = false // then it is not
			}
		}
	}
	switch {
	case c.Register != nil:
		id := c.Register.Node.ID
		old, life := was.Nodes[id], now.Nodes[id]
		if old == nil || life == nil || old.BrokerEpoch == life.BrokerEpoch {
			return // refused, repeated or new
		}
		lost := old.Storage != life.Storage || c.Register.Last != old.Activated && c.Register.Last != old.BrokerEpoch
		rebooted := old.Boot != life.Boot && (topic.Settings.Durability == cluster.Replicated || before.Version != 0 && slices.Contains(was.ByID[topic.ID].Volatile, id))
		if lost || rebooted || slices.Contains(c.Register.Unfit, ref) {
			lose(id)
		}
	case c.Unfit != nil:
		n := was.Nodes[c.Unfit.Life.Node]
		if n != nil && n.BrokerEpoch == c.Unfit.Life.Epoch && !n.Over() && slices.Contains(c.Unfit.Partitions, ref) && now.Index != was.Index {
			if p.Version != before.Version || slices.Contains(before.ISR, n.ID) && len(before.ISR)+len(before.ELR) == 1 {
				lose(n.ID)
			}
		}
	case c.Insync != nil:
		for _, n := range p.ISR { // its leader let it in because it had caught up
			if !slices.Contains(before.ISR, n) {
				g.holds[n] = g.committed
			}
		}
	}
	if p.Unclean > before.Unclean {
		leads := p.Leader
		if p.Unclean > p.LeaderEpoch {
			leads = p.ISR[0] // the only one who may
		}
		g.committed = g.holds[leads] // what the others had more of is lost
		g.hopeless = false
	}
}

func (g *ghost) fault(p *cluster.Partition) string {
	if g.hopeless {
		return ""
	}
	for _, n := range slices.Concat(p.ISR, p.ELR) {
		if g.holds[n] < g.committed {
			return "somebody electable lacks committed records"
		}
	}
	return ""
}

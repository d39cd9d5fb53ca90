package balance_test

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"tidewire/coordinator/balance"
	"tidewire/coordinator/state"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// sim is a cluster whose coordinator is the real state machine and whose followers
// are in sync as soon as their leader reaches them.
type sim struct {
	t      fataler
	m      *state.Machine
	p      *balance.Planner
	cfg    balance.Config
	index  uint64
	now    time.Time
	up     map[ident.NodeID]bool
	cut    map[[2]ident.NodeID]bool // who does not reach whom
	slow   bool                     // followers catch up only when told to
	topics byte
}

type fataler interface {
	Fatal(...any)
	Fatalf(string, ...any)
}

func newSim(t fataler, cfg balance.Config, nodes int, zones ...string) *sim {
	s := &sim{t: t, m: state.New(), p: balance.New(cfg), cfg: cfg, now: time.Unix(1000, 0), up: map[ident.NodeID]bool{}, cut: map[[2]ident.NodeID]bool{}}
	for i := range nodes {
		zone := ""
		if len(zones) > 0 {
			zone = zones[i%len(zones)]
		}
		s.start(node(i), zone)
	}
	return s
}

func node(i int) ident.NodeID { return ident.NodeID{byte(i + 1)} }

func (s *sim) propose(c cluster.Change) cluster.Answer {
	s.index++
	b, err := state.Encode(&state.Command{Request: state.RequestID{byte(s.index >> 16), byte(s.index >> 8), byte(s.index)}, Time: s.now.UnixMilli(), Change: c})
	if err != nil {
		s.t.Fatal(err)
	}
	a, err := s.m.Apply(s.index, b)
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

func (s *sim) start(id ident.NodeID, zone string) { s.startAs(id, fmt.Sprint("n", id[0]), zone) }

func (s *sim) startAs(id ident.NodeID, name, zone string) {
	r := &cluster.Register{Node: cluster.Node{ID: id, Name: name, Zone: zone, Roles: []string{"broker"}}}
	if known := s.m.Snapshot().Nodes[id]; known != nil {
		r.Last = known.Activated
	}
	a := s.propose(cluster.Change{Register: r})
	if a.Refusal != nil {
		s.t.Fatal(a.Refusal)
	}
	s.propose(cluster.Change{Activate: &cluster.Activate{Node: id, Epoch: a.Epoch}})
	s.up[id] = true
}

func (s *sim) kill(id ident.NodeID) {
	s.up[id] = false
	if n := s.m.Snapshot().Nodes[id]; n != nil {
		s.propose(cluster.Change{Expire: &cluster.Expire{Lives: []cluster.Life{n.Life()}}})
	}
}

func (s *sim) create(partitions, replicas int) {
	s.topics++
	s.propose(cluster.Change{Create: &cluster.Create{ID: ident.TopicID{s.topics}, Spec: cluster.TopicSpec{
		Name: fmt.Sprint("t", s.topics), Partitions: &partitions, SettingsPatch: cluster.SettingsPatch{Replicas: &replicas},
	}}})
}

func (s *sim) sortedNodes() []*cluster.Node {
	return slices.SortedFunc(maps.Values(s.m.Snapshot().Nodes), func(a, b *cluster.Node) int { return bytes.Compare(a.ID[:], b.ID[:]) })
}

// catchUp lets each leader have in its ISR whom it reaches, and nobody else.
func (s *sim) catchUp() {
	view := s.m.Snapshot()
	for _, n := range s.sortedNodes() {
		c := &cluster.Insync{Leader: n.Life()}
		for _, t := range s.sortedTopics() {
			for k := range t.Partitions {
				p := &t.Partitions[k]
				if p.Leader != n.ID {
					continue
				}
				o := cluster.InsyncOf{Partition: t.Ref(p.Index), Epoch: p.LeaderEpoch, Version: p.Version}
				for _, r := range p.Replicas {
					if r == n.ID || s.up[r] && view.Nodes[r].Serves() && !s.cut[[2]ident.NodeID{n.ID, r}] {
						o.ISR = append(o.ISR, view.Nodes[r].Life())
					}
				}
				if len(o.ISR) != len(p.ISR) {
					c.Of = append(c.Of, o)
				}
			}
		}
		if len(c.Of) > 0 {
			s.propose(cluster.Change{Insync: c})
		}
	}
}

func (s *sim) sortedTopics() []*cluster.Topic {
	return slices.SortedFunc(maps.Values(s.m.Snapshot().Topics), func(a, b *cluster.Topic) int { return cmp.Compare(a.Name, b.Name) })
}

// plan makes one plan, holds it to its bounds, and does what it says.
func (s *sim) plan() []cluster.Change {
	changes := s.p.Plan(s.now, s.m.Snapshot(), func(id ident.NodeID) bool { return s.up[id] })
	for _, c := range changes {
		if c.Count() != 1 {
			s.t.Fatalf("%+v", c)
		}
		s.propose(c)
	}
	if moving := s.moving(); moving > max(4, s.cfg.Moves) {
		s.t.Fatalf("%d partitions move at once", moving)
	}
	return changes
}

// run lets time pass in steps, and gives what was planned meanwhile.
func (s *sim) run(d, step time.Duration) (all []cluster.Change) {
	for end := s.now.Add(d); s.now.Before(end); {
		s.now = s.now.Add(step)
		all = append(all, s.plan()...)
		if !s.slow {
			s.catchUp()
		}
	}
	return all
}

func (s *sim) moving() (n int) {
	for _, t := range s.m.Snapshot().Topics {
		for _, p := range t.Partitions {
			if len(p.Adding) > 0 {
				n++
			}
		}
	}
	return n
}

// needs says that some partition cannot be led without a node.
func (s *sim) needs(id ident.NodeID) bool {
	for _, t := range s.sortedTopics() {
		for _, p := range t.Partitions {
			if !slices.ContainsFunc(slices.Concat(p.ISR, p.ELR), func(n ident.NodeID) bool { return n != id }) {
				return true
			}
		}
	}
	return false
}

// held counts the replicas and the leaders of each node that serves.
func (s *sim) held() (replicas, leaders map[ident.NodeID]int) {
	replicas, leaders = map[ident.NodeID]int{}, map[ident.NodeID]int{}
	view := s.m.Snapshot()
	for id, n := range view.Nodes {
		if n.Serves() && n.State != cluster.DrainingState {
			replicas[id], leaders[id] = 0, 0
		}
	}
	for _, t := range view.Topics {
		for _, p := range t.Partitions {
			for _, id := range p.Replicas {
				replicas[id]++
			}
			if p.Leader != (ident.NodeID{}) {
				leaders[p.Leader]++
			}
		}
	}
	return replicas, leaders
}

func spread(counts map[ident.NodeID]int) int {
	if len(counts) == 0 {
		return 0
	}
	values := slices.Collect(maps.Values(counts))
	return slices.Max(values) - slices.Min(values)
}

func describe(s *sim) string {
	out := ""
	for _, n := range s.sortedNodes() {
		out += fmt.Sprintf("node %d %s\n", n.ID[0], n.State)
	}
	ids := func(of []ident.NodeID) (all []byte) {
		for _, id := range of {
			all = append(all, id[0])
		}
		return all
	}
	for _, t := range s.sortedTopics() {
		for _, p := range t.Partitions {
			out += fmt.Sprintf("%s/%d replicas %v isr %v elr %v adding %v removing %v leader %d epoch %d version %d\n",
				t.Name, p.Index, ids(p.Replicas), ids(p.ISR), ids(p.ELR), ids(p.Adding), ids(p.Removing), p.Leader[0], p.LeaderEpoch, p.Version)
		}
	}
	return out
}

func BenchmarkPlan(b *testing.B) {
	s := newSim(b, balance.Config{}, 3)
	for range 200 {
		s.create(25, 3)
	}
	s.run(time.Minute, time.Second)
	view := s.m.Snapshot()
	for b.Loop() {
		s.now = s.now.Add(200 * time.Millisecond)
		if changes := s.p.Plan(s.now, view, func(ident.NodeID) bool { return true }); len(changes) > 0 {
			b.Fatal(changes)
		}
	}
}

package balance_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tidewire/coordinator/balance"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

const tick = 200 * time.Millisecond

func only(t *testing.T, s *sim, topic string) *cluster.Partition {
	t.Helper()
	found, ok := s.m.Snapshot().Topic(topic)
	if !ok || len(found.Partitions) != 1 {
		t.Fatal("no such topic of one partition: ", topic)
	}
	return &found.Partitions[0]
}

func TestLeadersLeaveADrainingNodeAsSoonAsSomebodyIsInSync(t *testing.T) {
	s := newSim(t, balance.Config{}, 2)
	s.create(1, 2)
	p := only(t, s, "t1")
	first, other := p.Replicas[0], p.Replicas[1]
	s.kill(other)
	s.start(other, "")
	s.propose(cluster.Change{Drain: &cluster.Drain{Node: first}})
	if p := only(t, s, "t1"); p.Leader != first || len(p.ISR) != 1 {
		t.Fatal(describe(s))
	}
	if changes := s.plan(); len(changes) > 0 {
		t.Fatalf("nobody else is in sync, and yet %+v", changes)
	}
	s.catchUp()
	s.now = s.now.Add(tick)
	s.plan()
	if p := only(t, s, "t1"); p.Leader != other {
		t.Fatal(describe(s))
	}
	if changes := s.run(time.Minute, tick); len(changes) > 0 {
		t.Fatalf("the first choice drains and should not lead: %+v\n%s", changes, describe(s))
	}
	s.propose(cluster.Change{Drain: &cluster.Drain{Node: first, Cancel: true}})
	s.run(10*time.Second, tick)
	if p := only(t, s, "t1"); p.Leader != first {
		t.Fatal(describe(s))
	}
}

func TestAnElectableFollowerTakesOverFromALeaderThatReachesNobody(t *testing.T) {
	s := newSim(t, balance.Config{}, 3)
	s.create(1, 3)
	leader := only(t, s, "t1").Leader
	for i := range 3 {
		s.cut[[2]ident.NodeID{leader, node(i)}] = true
		s.cut[[2]ident.NodeID{node(i), leader}] = true
	}
	s.catchUp()
	if p := only(t, s, "t1"); len(p.ISR) != 1 || len(p.ELR) != 2 {
		t.Fatal(describe(s))
	}
	began := s.now
	for only(t, s, "t1").Leader == leader {
		s.run(tick, tick)
		if s.now.Sub(began) > 5*time.Second {
			t.Fatal("nobody took over", describe(s))
		}
	}
	if took := s.now.Sub(began); took < 3*time.Second {
		t.Fatalf("it waited only %s", took)
	}
	if p := only(t, s, "t1"); len(p.ISR) != 2 || slices.Contains(p.ISR, leader) {
		t.Fatal("the new leader waits for more than those whom it reaches", describe(s))
	}
	if changes := s.run(time.Minute, tick); len(changes) > 0 {
		t.Fatalf("the first choice is not in sync, and %+v\n%s", changes, describe(s))
	}
	clear(s.cut)
	s.run(10*time.Second, tick)
	if p := only(t, s, "t1"); p.Leader != leader || len(p.ISR) != 3 {
		t.Fatal("the first choice does not lead again\n", describe(s))
	}
}

// Where nobody reaches anybody no order of leaders helps, so they change ever more seldom.
func TestTakeoversBackOff(t *testing.T) {
	s := newSim(t, balance.Config{}, 2)
	s.create(1, 2)
	s.propose(cluster.Change{Alter: &cluster.Alter{Name: "t1", Patch: cluster.SettingsPatch{MinInsync: new(2)}}})
	s.cut[[2]ident.NodeID{node(0), node(1)}] = true
	s.cut[[2]ident.NodeID{node(1), node(0)}] = true
	s.catchUp()
	var at []time.Duration
	began, epoch := s.now, only(t, s, "t1").LeaderEpoch
	for s.now.Sub(began) < 3*time.Minute {
		s.run(tick, tick)
		if p := only(t, s, "t1"); p.LeaderEpoch != epoch {
			epoch = p.LeaderEpoch
			at = append(at, s.now.Sub(began))
		}
	}
	if len(at) != 6 { // after 3, 6, 12, 24, 48 and 60 seconds
		t.Fatalf("took over after %v", at)
	}
	for i := 1; i < len(at); i++ {
		before := time.Duration(0)
		if i > 1 {
			before = at[i-2]
		}
		if at[i]-at[i-1] <= at[i-1]-before {
			t.Fatalf("took over after %v", at)
		}
	}
}

// One who took over and reaches nobody either does not come again before everybody else
// has tried.
func TestTakeoversTakeTurns(t *testing.T) {
	s := newSim(t, balance.Config{}, 3)
	s.create(1, 3)
	first := only(t, s, "t1").Leader
	for i := range 3 {
		for k := range 3 {
			s.cut[[2]ident.NodeID{node(i), node(k)}] = true
		}
	}
	s.catchUp()
	led := map[ident.NodeID]bool{first: true}
	for began := s.now; s.now.Sub(began) < 11*time.Second; { // 3 and 6 seconds, and those of the plans
		s.run(tick, tick)
		led[only(t, s, "t1").Leader] = true
	}
	if p := only(t, s, "t1"); len(led) != 3 || p.LeaderEpoch != 3 {
		t.Fatal(led, describe(s))
	}
}

// Nothing changes while a takeover waits for its time, so the plan says when that is.
func TestAPlanSaysWhenATakeoverIsDue(t *testing.T) {
	s := newSim(t, balance.Config{ReplicaLag: time.Second}, 2)
	s.create(1, 2)
	s.propose(cluster.Change{Alter: &cluster.Alter{Name: "t1", Patch: cluster.SettingsPatch{MinInsync: new(2)}}})
	if s.plan(); !s.p.Due().IsZero() {
		t.Fatal("all is well", s.p.Due())
	}
	s.cut[[2]ident.NodeID{node(0), node(1)}], s.cut[[2]ident.NodeID{node(1), node(0)}] = true, true
	s.catchUp()
	s.plan()
	if due := s.p.Due(); !due.Equal(s.now.Add(1500 * time.Millisecond)) {
		t.Fatal(due, s.now)
	}
	s.now = s.p.Due()
	if changes := s.plan(); len(changes) != 1 || changes[0].Elect == nil {
		t.Fatalf("%+v", changes)
	}
}

// A partition that nobody leads has nobody to copy from, so no move of it begins: it
// would never end, and keep others from moving.
func TestWhatNobodyLeadsDoesNotMove(t *testing.T) {
	s := newSim(t, balance.Config{Moves: 1, ReplaceAfter: 20 * time.Second}, 3)
	s.create(3, 1)
	s.create(3, 2)
	s.run(10*time.Second, tick)
	s.kill(node(0))
	s.run(2*time.Minute, time.Second)
	for _, topic := range s.sortedTopics() {
		for _, p := range topic.Partitions {
			if p.Leader == (ident.NodeID{}) != slices.Contains(p.Replicas, node(0)) || len(p.Adding) > 0 {
				t.Fatal(describe(s))
			}
		}
	}
}

func TestWhatWasAskedForIsNotAskedForEveryTime(t *testing.T) {
	s := newSim(t, balance.Config{}, 3)
	s.create(4, 3)
	s.run(10*time.Second, tick)
	s.start(node(3), "")
	s.run(4*time.Second, tick)
	asked := 0
	for range 60 { // nothing that is planned is done
		s.now = s.now.Add(tick)
		for _, c := range s.p.Plan(s.now, s.m.Snapshot(), func(ident.NodeID) bool { return true }) {
			asked += len(c.Move.Of)
		}
	}
	if asked == 0 || asked > 3*3 { // three moves are due, and 12 s are two times 5 and more
		t.Fatalf("asked %d times", asked)
	}
}

func TestADeadNodesReplicasMoveWhenItDoesNotComeBack(t *testing.T) {
	s := newSim(t, balance.Config{}, 4)
	s.create(8, 3)
	s.run(10*time.Second, tick)
	s.kill(node(3))
	if changes := s.run(9*time.Minute, time.Second); len(changes) > 0 {
		t.Fatalf("most nodes come back: %+v", changes)
	}
	s.run(2*time.Minute, time.Second)
	replicas, _ := s.held()
	if len(replicas) != 3 || spread(replicas) > 1 || replicas[node(0)] != 8 {
		t.Fatal(replicas, describe(s))
	}
	if _, there := s.m.Snapshot().Nodes[node(3)]; there {
		t.Fatal("it holds nothing and is not forgotten")
	}
}

func TestANodeThatComesInAnothersPlaceGetsItsReplicasAtOnce(t *testing.T) {
	s := newSim(t, balance.Config{}, 3)
	s.create(6, 3)
	s.run(10*time.Second, tick)
	s.kill(node(2))
	s.startAs(node(9), "n3", "") // the same name, an empty folder
	s.run(20*time.Second, tick)
	replicas, leaders := s.held()
	if len(replicas) != 3 || replicas[node(9)] != 6 || spread(leaders) > 1 {
		t.Fatal(replicas, leaders, describe(s))
	}
	if _, there := s.m.Snapshot().Nodes[node(2)]; there {
		t.Fatal("the former node is not forgotten")
	}
}

func TestANewNodeGetsReplicasAndLeaders(t *testing.T) {
	s := newSim(t, balance.Config{}, 3)
	s.create(12, 3)
	s.run(10*time.Second, tick)
	s.start(node(3), "")
	s.run(30*time.Second, tick)
	replicas, leaders := s.held()
	if spread(replicas) > 1 || spread(leaders) > 1 {
		t.Fatal(replicas, leaders, describe(s))
	}
	if changes := s.run(time.Minute, tick); len(changes) > 0 {
		t.Fatalf("it does not rest: %+v", changes)
	}
}

func TestMovesWaitForThoseUnderWay(t *testing.T) {
	s := newSim(t, balance.Config{Moves: 2}, 3)
	s.create(12, 3)
	s.run(10*time.Second, tick)
	s.start(node(3), "")
	s.slow = true
	s.run(30*time.Second, tick)
	if s.moving() != 2 {
		t.Fatal(describe(s))
	}
	// The newcomer dies: its moves are given up after a while.
	s.kill(node(3))
	s.run(30*time.Second, tick)
	if s.moving() != 2 {
		t.Fatal("given up too early", describe(s))
	}
	s.run(40*time.Second, tick)
	if s.moving() != 0 {
		t.Fatal(describe(s))
	}
}

func TestTheFirstChoiceLeadsAgainAFewAtATime(t *testing.T) {
	s := newSim(t, balance.Config{}, 2)
	s.create(40, 2)
	s.run(10*time.Second, tick)
	_, before := s.held()
	s.kill(node(0))
	s.start(node(0), "")
	s.catchUp()
	began := s.now
	for s.now.Sub(began) < 10*time.Second {
		s.now = s.now.Add(tick)
		back := 0
		for _, c := range s.plan() {
			back += len(c.Elect.Of)
		}
		if back > 8 || back > 0 && s.now.Sub(began) < 5*time.Second {
			t.Fatalf("%d leaders at once after %s", back, s.now.Sub(began))
		}
	}
	if _, after := s.held(); after[node(0)] != before[node(0)] {
		t.Fatal(before, after)
	}
}

// From one node to three: the topic's leaders, too, come to lie on all of them.
func TestATopicThatGrowsIsLedByAll(t *testing.T) {
	s := newSim(t, balance.Config{}, 1)
	s.create(6, 1)
	s.start(node(1), "")
	s.start(node(2), "")
	s.propose(cluster.Change{Alter: &cluster.Alter{Name: "t1", Patch: cluster.SettingsPatch{Replicas: new(3), MinInsync: new(1)}}})
	s.run(30*time.Second, tick)
	if _, leaders := s.held(); spread(leaders) > 0 {
		t.Fatal(leaders, describe(s))
	}
}

func TestMissingReplicasComeWhenTheirNodesDo(t *testing.T) {
	s := newSim(t, balance.Config{}, 3)
	s.kill(node(2))
	s.create(4, 3)
	if replicas, _ := s.held(); replicas[node(0)] != 4 || len(replicas) != 2 {
		t.Fatal(describe(s))
	}
	s.start(node(2), "")
	s.run(20*time.Second, tick)
	if replicas, leaders := s.held(); replicas[node(2)] != 4 || spread(leaders) > 1 {
		t.Fatal(replicas, leaders, describe(s))
	}
}

// A move ends once enough of those who stay are in sync. What a partition lacks for that
// it gets while it moves: else a move that cannot end would hold its place for good.
func TestAMoveUnderWayGetsWhatThePartitionLacks(t *testing.T) {
	strict := func(s *sim, replicas int) {
		s.propose(cluster.Change{Alter: &cluster.Alter{Name: "t1", Patch: cluster.SettingsPatch{Replicas: &replicas, MinInsync: &replicas}}})
	}
	// moves has the replicas of a node under way to another.
	moves := func(s *sim, to int) {
		s.slow = true
		s.start(node(to), "")
		s.run(10*time.Second, tick)
		if s.moving() != 1 {
			t.Fatal("nothing moves", describe(s))
		}
	}
	for name, happens := range map[string]func(s *sim){
		"the topic asks for more": func(s *sim) {
			s.create(2, 1)
			moves(s, 1)
			strict(s, 2)
		},
		"who stays dies": func(s *sim) {
			s.start(node(1), "")
			s.start(node(2), "")
			s.create(4, 3)
			strict(s, 3)
			moves(s, 3)
			s.slow = false
			p := s.sortedTopics()[0].Partitions[0]
			s.kill(p.Replicas[slices.IndexFunc(p.Replicas, func(n ident.NodeID) bool {
				return !slices.Contains(p.Adding, n) && !slices.Contains(p.Removing, n)
			})])
		},
		"those that are replaced come one by one": func(s *sim) {
			s.start(node(1), "")
			s.start(node(2), "")
			s.create(1, 3)
			strict(s, 3)
			s.kill(node(1))
			s.kill(node(2))
			s.startAs(node(5), "n2", "")
			s.run(10*time.Second, tick)
			s.startAs(node(6), "n3", "")
		},
		"who came dies, and who stays": func(s *sim) {
			s.start(node(1), "")
			s.start(node(2), "")
			s.create(2, 3)
			strict(s, 3)
			moves(s, 3)
			p := s.sortedTopics()[0].Partitions[0]
			s.kill(node(3))
			s.kill(p.Replicas[slices.IndexFunc(p.Replicas, func(n ident.NodeID) bool {
				return !slices.Contains(p.Adding, n) && !slices.Contains(p.Removing, n)
			})])
			s.slow = false
			s.start(node(5), "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, balance.Config{Moves: 1}, 1)
			happens(s)
			s.slow = false
			s.run(20*time.Minute, time.Second)
			if s.moving() > 0 {
				t.Fatal("a move never ends", describe(s))
			}
			for _, topic := range s.sortedTopics() {
				for _, p := range topic.Partitions {
					if len(p.ISR) != topic.Settings.Replicas || len(p.Replicas) != len(p.ISR) {
						t.Fatal(describe(s))
					}
				}
			}
		})
	}
}

// Whatever happened, the cluster comes to rest: everybody who is up holds and leads
// its share, nothing moves any more, and on the way never more than the bound did.
func TestEveryClusterComesToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zones := []string{"x", "y", "z"}[:rapid.IntRange(1, 3).Draw(t, "zones")]
		cfg := balance.Config{ReplaceAfter: 30 * time.Second, Moves: rapid.IntRange(1, 4).Draw(t, "moves")}
		nodes := rapid.IntRange(1, 4).Draw(t, "nodes")
		s := newSim(t, cfg, nodes, zones...)
		zone := func(i int) string { return zones[i%len(zones)] }
		for range rapid.IntRange(1, 25).Draw(t, "events") {
			i := rapid.IntRange(0, nodes-1).Draw(t, "node")
			known := s.m.Snapshot().Nodes[node(i)]
			switch rapid.IntRange(0, 7).Draw(t, "event") {
			case 0:
				s.create(rapid.IntRange(1, 7).Draw(t, "partitions"), rapid.IntRange(1, 3).Draw(t, "replicas"))
			case 1:
				s.kill(node(i))
			case 2:
				s.start(node(i), zone(i))
			case 3:
				if nodes < 7 {
					s.start(node(nodes), zone(nodes))
					nodes++
				}
			case 4:
				s.propose(cluster.Change{Drain: &cluster.Drain{Node: node(i), Cancel: rapid.Bool().Draw(t, "cancel")}})
			case 5:
				s.propose(cluster.Change{Alter: &cluster.Alter{Name: "t1", Patch: cluster.SettingsPatch{
					Replicas: new(rapid.IntRange(1, 3).Draw(t, "replicas")), MinInsync: new(rapid.IntRange(1, 3).Draw(t, "min_insync")),
				}}})
			case 6:
				s.slow = !s.slow
			default:
				if known != nil && rapid.Bool().Draw(t, "all") { // all of them at once
					for k := range nodes {
						s.kill(node(k))
					}
				}
			}
			s.run(time.Duration(rapid.SampledFrom([]int{0, 1, 3, 10, 40}).Draw(t, "seconds"))*time.Second, time.Second)
		}
		// Everything heals, but for one node at most that nobody needs any more: it was
		// not the last to hold something, and there are enough others.
		s.slow = false
		lost := rapid.IntRange(-1, nodes-1).Draw(t, "lost")
		if nodes < 4 || lost < 0 || s.up[node(lost)] || s.needs(node(lost)) {
			lost = -1
		}
		for i := range nodes {
			if i == lost {
				continue
			}
			if n := s.m.Snapshot().Nodes[node(i)]; n == nil || !n.Serves() || n.State == cluster.DrainingState {
				s.start(node(i), zone(i))
			}
		}
		for range 10 {
			if len(s.run(90*time.Second, time.Second)) == 0 {
				break
			}
		}
		if changes := s.run(2*time.Minute, time.Second); len(changes) > 0 {
			t.Fatalf("it does not come to rest: %+v\n%s", changes, describe(s))
		}
		replicas, _ := s.held()
		nodes = len(replicas)
		there := map[string]bool{}
		for id := range replicas {
			there[s.m.Snapshot().Nodes[id].Zone] = true
		}
		if len(zones) == 1 && spread(replicas) > 1 {
			t.Fatalf("nodes hold %v\n%s", replicas, describe(s))
		}
		for _, topic := range s.sortedTopics() {
			for _, p := range topic.Partitions {
				if p.Leader != p.Replicas[0] || len(p.ISR) != len(p.Replicas) || len(p.Replicas) != min(topic.Settings.Replicas, nodes) {
					t.Fatalf("topic %s partition %d is not as it should be\n%s", topic.Name, p.Index, describe(s))
				}
				in := map[string]bool{}
				for _, id := range p.Replicas {
					in[s.m.Snapshot().Nodes[id].Zone] = true
				}
				if want := min(len(p.Replicas), len(there)); len(in) < want {
					t.Fatalf("topic %s partition %d lies in %d zones of %d\n%s", topic.Name, p.Index, len(in), want, describe(s))
				}
			}
		}
	})
}

func TestAPlanDoesNotHangOnTheOrderOfMaps(t *testing.T) {
	var first []cluster.Change
	for range 10 {
		s := newSim(t, balance.Config{}, 3)
		s.create(12, 3)
		s.create(5, 2)
		s.start(node(3), "")
		s.start(node(4), "")
		s.propose(cluster.Change{Drain: &cluster.Drain{Node: node(1)}})
		all := s.run(20*time.Second, tick)
		if first == nil {
			first = all
			continue
		}
		if !slices.EqualFunc(first, all, func(a, b cluster.Change) bool { return a.Kind() == b.Kind() && sameParts(&a, &b) }) {
			t.Fatal("the same cluster gave another plan")
		}
	}
}

func sameParts(a, b *cluster.Change) bool {
	switch {
	case a.Elect != nil:
		return slices.Equal(a.Elect.Of, b.Elect.Of)
	case a.Move != nil:
		return slices.EqualFunc(a.Move.Of, b.Move.Of, func(x, y cluster.MoveOf) bool {
			return x.Partition == y.Partition && x.Version == y.Version && x.First == y.First && slices.Equal(x.Add, y.Add) && slices.Equal(x.Remove, y.Remove)
		})
	}
	return *a.Retire == *b.Retire
}

// A node whose disk is full gives what it leads to replicas in sync that have room, and
// has it back once it has had room for a while. What nobody else can lead stays.
func TestAFullNodeLeadsWhatNobodyElseCan(t *testing.T) {
	s := newSim(t, balance.Config{}, 3)
	s.create(6, 3)
	s.create(3, 1)
	s.run(20*time.Second, tick)
	_, before := s.held()
	alone := 0
	for _, p := range partitionsOf(t, s, "t2") {
		if p.Leader == node(0) {
			alone++
		}
	}
	if before[node(0)] <= alone {
		t.Fatal(describe(s))
	}
	full := func(d time.Duration, of ...ident.NodeID) {
		for began := s.now; s.now.Sub(began) < d; {
			for _, id := range of {
				s.p.Full(id, s.now)
			}
			s.run(tick, tick)
		}
	}
	epochs := func() (sum ident.Epoch) {
		for _, p := range partitionsOf(t, s, "t1") {
			sum += p.LeaderEpoch
		}
		return sum
	}
	began := epochs()
	full(30*time.Second, node(0))
	if _, led := s.held(); led[node(0)] != alone {
		t.Fatal("it leads more than nobody else can", describe(s))
	}
	moved := epochs()
	if moved-began != ident.Epoch(before[node(0)]-alone) {
		t.Errorf("%d changes of leaders for %d that it led", moved-began, before[node(0)]-alone)
	}
	full(30*time.Second, node(0), node(1), node(2)) // nobody is better than who leads
	s.run(25*time.Second, tick)
	if epochs() != moved {
		t.Error("leaders go to and fro", describe(s))
	}
	s.run(30*time.Second, tick)
	if _, led := s.held(); led[node(0)] != before[node(0)] {
		t.Error("it has room and does not lead again", describe(s))
	}
}

func partitionsOf(t *testing.T, s *sim, name string) []cluster.Partition {
	t.Helper()
	topic, ok := s.m.Snapshot().Topic(name)
	if !ok {
		t.Fatal("there is no topic", name)
	}
	return topic.Partitions
}

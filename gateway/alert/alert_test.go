package alert

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// scene is a cluster of three nodes and one topic of one partition, changed as a
// test goes on.
type scene struct {
	*testing.T
	m       *Machine
	now     time.Time
	s       *cluster.Snapshot
	part    *cluster.Partition
	reports map[ident.NodeID]Report
	stale   bool
	silent  map[ident.NodeID]bool
}

func (c *scene) input() Input {
	return Input{Snapshot: c.s, Reports: c.reports, Stale: c.stale, Silent: c.silent}
}

var nodes = []ident.NodeID{{1}, {2}, {3}}

func newScene(t *testing.T) *scene {
	topic := &cluster.Topic{ID: ident.TopicID{1}, Name: "orders", Settings: cluster.Settings{Replicas: 3, MinInsync: 2}}
	topic.Partitions = []cluster.Partition{{Replicas: nodes, ISR: nodes, Leader: nodes[0]}}
	c := &scene{T: t, m: New(), now: time.Unix(1000, 0), part: &topic.Partitions[0], reports: map[ident.NodeID]Report{}, s: &cluster.Snapshot{
		Topics: map[string]*cluster.Topic{"orders": topic}, ByID: map[ident.TopicID]*cluster.Topic{topic.ID: topic}, Nodes: map[ident.NodeID]*cluster.Node{},
	}}
	for i, id := range nodes {
		c.s.Nodes[id] = &cluster.Node{ID: id, Name: fmt.Sprint("n", i+1), State: cluster.Alive}
		c.reports[id] = Report{Free: 10 << 30, Least: 64 << 20}
	}
	return c
}

// says observes for some seconds and holds what is listed against what is wanted.
func (c *scene) says(seconds int, want string) {
	c.Helper()
	for range seconds {
		c.now = c.now.Add(time.Second)
		c.m.Observe(c.now, c.input())
	}
	var got []string
	for _, a := range c.m.List() {
		text := a.Alert
		if a.Topic != "" {
			text += fmt.Sprintf(" %s/%d", a.Topic, a.Partition)
		}
		if a.Group != "" {
			text += " " + a.Group
		}
		if a.Node != (ident.NodeID{}) {
			text += " " + c.s.Nodes[a.Node].Name
		}
		if !a.Firing {
			text += " resolved"
		}
		if a.Detail == "" || a.Advice == "" || a.Since.IsZero() || a.Firing != a.Until.IsZero() {
			c.Errorf("unfinished: %+v", a)
		}
		got = append(got, text)
	}
	if strings.Join(got, ", ") != want {
		c.Errorf("got  %q\nwant %q", strings.Join(got, ", "), want)
	}
	firing := 0
	for _, n := range c.m.Firing() {
		firing += n
	}
	if firing != strings.Count(want, ", ")+min(1, len(want))-strings.Count(want, "resolved") {
		c.Errorf("%d counted as firing", firing)
	}
}

func TestANodeThatGoesDownAndComesBack(t *testing.T) {
	c := newScene(t)
	c.says(3, "")
	c.s.Nodes[nodes[2]].State = cluster.Dead
	c.part.ISR = nodes[:2]
	c.says(1, "node-down n3") // whoever declared it over has waited
	c.says(1, "node-down n3, under-replicated orders/0")
	c.s.Nodes[nodes[2]].State = cluster.Alive
	c.says(3, "replica-lag orders/0 n3, under-replicated orders/0, node-down n3 resolved")
	c.part.ISR = nodes
	c.says(2, "replica-lag orders/0 n3 resolved, under-replicated orders/0 resolved, node-down n3 resolved")
	c.says(3700, "")
}

func TestWhatPassesInAMomentIsNoAlert(t *testing.T) {
	c := newScene(t)
	c.part.ISR = nodes[:2]
	c.says(1, "")
	c.part.ISR = nodes
	c.says(1, "")
	c.part.ISR = nodes[:2]
	c.says(1, "")
	c.says(1, "replica-lag orders/0 n3, under-replicated orders/0")
	c.part.ISR = nodes
	c.says(1, "replica-lag orders/0 n3, under-replicated orders/0")
	c.part.ISR = nodes[:2]
	c.says(1, "replica-lag orders/0 n3, under-replicated orders/0")
}

// A node that has registered is not down, unless it does not come to serve.
func TestANodeThatComes(t *testing.T) {
	c := newScene(t)
	n := c.s.Nodes[nodes[2]]
	n.State, n.BrokerEpoch, n.Ended = cluster.Dead, 7, 5
	c.says(5, "")
	c.says(1, "node-down n3")
	n.State, n.Activated = cluster.Alive, 7
	c.says(2, "node-down n3 resolved")
}

// Where no coordinator is heard a node is down that does not answer.
func TestNobodyTellsWhoLives(t *testing.T) {
	c := newScene(t)
	c.silent = map[ident.NodeID]bool{nodes[1]: true}
	c.says(3, "")
	c.stale = true
	c.says(1, "node-down n2")
	c.stale = false
	c.says(2, "node-down n2 resolved")
}

// Whoever observes at the moments that the machine names misses none.
func TestTheNextMomentIsKnown(t *testing.T) {
	c := newScene(t)
	if next := c.m.Observe(c.now, c.input()); !next.IsZero() {
		t.Errorf("nothing will happen, and %s is named", next)
	}
	c.part.ISR = nodes[:2]
	for _, want := range []string{"replica-lag orders/0 n3, under-replicated orders/0", "replica-lag orders/0 n3 resolved, under-replicated orders/0 resolved"} {
		next := c.m.Observe(c.now, c.input())
		if next != c.now.Add(time.Second) {
			t.Fatalf("%s is named at %s", next, c.now)
		}
		c.m.Observe(next.Add(-time.Nanosecond), c.input())
		c.says(1, want)
		if next := c.m.Observe(c.now, c.input()); !next.IsZero() {
			t.Errorf("nothing will happen, and %s is named", next)
		}
		c.part.ISR = nodes
	}
}

// A replica that comes for a move is no replica that lags.
func TestAMoveIsNoAlert(t *testing.T) {
	c := newScene(t)
	c.part.ISR, c.part.Adding = nodes[:2], nodes[2:]
	c.says(5, "")
}

// A topic that was made while a broker was down has too few replicas, all in sync.
func TestAReplicaThatHasNoPlace(t *testing.T) {
	c := newScene(t)
	c.part.Replicas, c.part.ISR = nodes[:2], nodes[:2]
	c.says(2, "under-replicated orders/0")
	c.part.Replicas, c.part.Adding = nodes, nodes[2:]
	c.says(2, "under-replicated orders/0 resolved")
	c.part.Adding, c.part.ISR = nil, nodes
	c.says(2, "under-replicated orders/0 resolved")
}

func TestADiskThatRunsFull(t *testing.T) {
	c := newScene(t)
	free := func(mib int64) { c.reports[nodes[0]] = Report{Free: mib << 20, Least: 64 << 20} }
	free(130)
	c.says(1, "")
	free(127)
	c.says(1, "disk-space n1")
	free(150) // not enough to be well again
	c.says(20, "disk-space n1")
	free(161)
	c.says(5, "disk-space n1")
	c.says(1, "disk-space n1 resolved")
	free(150)
	c.says(1, "disk-space n1 resolved")
}

// Who says nothing has not said that all is well.
func TestSilenceResolvesNothing(t *testing.T) {
	c := newScene(t)
	c.reports[nodes[1]] = Report{Least: 64 << 20, Corrupt: []ident.Partition{{Topic: ident.TopicID{1}}}}
	c.says(1, "corrupt-replica orders/0 n2, disk-space n2")
	delete(c.reports, nodes[1])
	c.says(60, "corrupt-replica orders/0 n2, disk-space n2")
	c.reports[nodes[1]] = Report{Free: 10 << 30}
	c.says(6, "corrupt-replica orders/0 n2 resolved, disk-space n2 resolved")
	c.reports[nodes[1]] = Report{Free: 10 << 30, Corrupt: []ident.Partition{{Topic: ident.TopicID{9}}}} // of a topic that was deleted
	c.says(1, "corrupt-replica orders/0 n2 resolved, disk-space n2 resolved")
}

func TestAlertsAreBounded(t *testing.T) {
	c := newScene(t)
	topic := c.s.Topics["orders"]
	for i := range 6000 {
		topic.Partitions = append(topic.Partitions, cluster.Partition{Index: ident.Index(i + 1), Replicas: nodes, ISR: nodes[:2], Leader: nodes[0]})
	}
	for range 3 {
		c.now = c.now.Add(time.Second)
		c.m.Observe(c.now, c.input())
	}
	if n := len(c.m.List()); n != MaxAlerts {
		t.Errorf("%d alerts", n)
	}
	topic.Partitions = topic.Partitions[:1]
	for range 3 {
		c.now = c.now.Add(time.Second)
		c.m.Observe(c.now, c.input())
	}
	if n := len(c.m.List()); n != mostResolved {
		t.Errorf("%d alerts are told of", n)
	}
}

// A group that pauses for a moment is busy; one that stays so needs somebody. Its leader
// says so, and nobody else: one that leads no more knows nothing.
func TestAGroupThatGetsNothingNew(t *testing.T) {
	c := newScene(t)
	c.s.Groups = map[ident.TopicID]*cluster.GroupTable{{1}: (*cluster.GroupTable)(nil).With(&cluster.Group{Topic: ident.TopicID{1}, Name: "billing"})}
	pauses := func(on int, groups ...string) {
		r := Report{Free: 10 << 30}
		for _, g := range groups {
			r.Paused = append(r.Paused, Pause{ident.Partition{Topic: ident.TopicID{1}}, g})
		}
		c.reports[nodes[on]] = r
	}
	pauses(0, "billing", "deleted")
	c.says(3, "")
	pauses(0)
	c.says(1, "")
	pauses(0, "billing")
	c.says(5, "")
	c.says(1, "group-paused orders/0 billing")
	c.part.Leader = nodes[1] // and it is taken over as it is
	pauses(1, "billing")
	pauses(0)
	c.says(9, "group-paused orders/0 billing")
	delete(c.reports, nodes[1])
	c.says(9, "group-paused orders/0 billing")
	pauses(1)
	pauses(0, "billing") // as it knew
	c.says(3, "group-paused orders/0 billing")
	c.says(1, "group-paused orders/0 billing resolved")
}

package state

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"tidewire/coordinator/placement"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// Bounds of the whole cluster's metadata: all of it lives in the memory of
// every node.
const (
	MaxTopics     = 10_000
	MaxPartitions = 100_000
	// MaxDeleted is how many ids of deleted topics are remembered.
	MaxDeleted = 10_000
)

// Machine holds the state and applies commands to it. One goroutine owns it.
type Machine struct {
	now     int64 // ms since 1970: the latest time any command carried
	view    cluster.Snapshot
	shared  shared // which maps of view a published snapshot holds too
	deleted []deletedTopic
	answers answers

	// Derived from the topics.
	partitions int
	loads      map[ident.NodeID]placement.Load
}

type deletedTopic struct {
	Topic ident.TopicID
	Index uint64
}

type shared struct{ topics, nodes, deleted bool }

// New is the state before the first command.
func New() *Machine {
	return &Machine{
		view: cluster.Snapshot{
			Topics:  map[string]*cluster.Topic{},
			ByID:    map[ident.TopicID]*cluster.Topic{},
			Nodes:   map[ident.NodeID]*cluster.Node{},
			Deleted: map[ident.TopicID]uint64{},
		},
		answers: newAnswers(nil),
		loads:   map[ident.NodeID]placement.Load{},
	}
}

// Snapshot publishes the state as it is now. It never changes afterwards.
func (m *Machine) Snapshot() *cluster.Snapshot {
	m.shared = shared{true, true, true}
	s := m.view
	return &s
}

// Apply applies one entry of the Raft log. It never panics: an error says that
// the entry cannot be applied by this program and that nothing was changed.
func (m *Machine) Apply(index uint64, command []byte) (Answer, error) {
	c, err := Decode(command)
	if err != nil {
		return Answer{}, fmt.Errorf("entry %d: %w", index, err)
	}
	if index <= m.view.Index {
		return Answer{}, fmt.Errorf("entry %d comes after entry %d", index, m.view.Index)
	}
	m.view.Index = index
	m.now = max(m.now, c.Time)

	if r, ok := m.answers.get(c.Request); ok {
		return m.again(r), nil
	}
	a := m.change(c)
	a.Index = index
	a.Cluster = m.view.Cluster
	r := remembered{Request: c.Request, Index: index, Created: a.Created, Epoch: a.Epoch, Refusal: a.Refusal}
	if a.Topic != nil {
		r.Topic = &a.Topic.ID
	}
	m.answers.add(r)
	return a, nil
}

func (m *Machine) change(c *Command) Answer {
	switch {
	case c.Found != nil:
		if m.view.Cluster == (ident.ClusterID{}) {
			m.view.Cluster = c.Found.Cluster
		}
		return Answer{}
	case c.Register != nil:
		return m.register(c.Register.Node)
	case c.Create != nil:
		return m.create(c.Create)
	case c.Alter != nil:
		return m.alter(c.Alter)
	default: // Decode lets exactly one through
		return m.delete(c.Delete.Name)
	}
}

func (m *Machine) again(r remembered) Answer {
	a := Answer{Index: r.Index, Created: r.Created, Epoch: r.Epoch, Cluster: m.view.Cluster, Refusal: r.Refusal}
	if r.Topic != nil {
		a.Topic = m.view.ByID[*r.Topic]
	}
	return a
}

func (m *Machine) time() time.Time { return time.UnixMilli(m.now).UTC() }

// put stores a topic, new or changed. The value must not be changed afterwards.
func (m *Machine) put(t *cluster.Topic) {
	m.ownTopics()
	if old := m.view.ByID[t.ID]; old != nil {
		m.count(old, -1)
	}
	m.count(t, +1)
	m.view.Topics[t.Name] = t
	m.view.ByID[t.ID] = t
}

func (m *Machine) remove(t *cluster.Topic) {
	m.ownTopics()
	m.count(t, -1)
	delete(m.view.Topics, t.Name)
	delete(m.view.ByID, t.ID)

	if m.shared.deleted {
		m.view.Deleted = maps.Clone(m.view.Deleted)
		m.shared.deleted = false
	}
	m.view.Deleted[t.ID] = m.view.Index
	m.deleted = append(m.deleted, deletedTopic{t.ID, m.view.Index})
	for len(m.deleted) > MaxDeleted {
		delete(m.view.Deleted, m.deleted[0].Topic)
		m.view.DeletedFloor = m.deleted[0].Index
		m.deleted = m.deleted[1:]
	}
}

func (m *Machine) putNode(n *cluster.Node) {
	if m.shared.nodes {
		m.view.Nodes = maps.Clone(m.view.Nodes)
		m.shared.nodes = false
	}
	m.view.Nodes[n.ID] = n
}

func (m *Machine) ownTopics() {
	if m.shared.topics {
		m.view.Topics = maps.Clone(m.view.Topics)
		m.view.ByID = maps.Clone(m.view.ByID)
		m.shared.topics = false
	}
}

// count keeps the derived figures, adding (+1) or taking away (-1) a topic.
func (m *Machine) count(t *cluster.Topic, sign int) {
	m.partitions += sign * len(t.Partitions)
	for i := range t.Partitions {
		p := &t.Partitions[i]
		for _, n := range p.Replicas {
			l := m.loads[n]
			l.Node = n
			l.Replicas += sign
			if p.Leader == n {
				l.Leaders += sign
			}
			m.loads[n] = l
		}
	}
}

// brokers lists the load of every node that holds partitions.
func (m *Machine) brokers() []placement.Load {
	var loads []placement.Load
	for id, n := range m.view.Nodes {
		if slices.Contains(n.Roles, "broker") {
			l := m.loads[id]
			l.Node = id
			loads = append(loads, l)
		}
	}
	return loads // in any order: placement sorts
}

// edit changes a copy of a topic and stores it. The caller's function gets
// partitions of its own; the slices inside them it must replace, not write to.
func (m *Machine) edit(t *cluster.Topic, change func(*cluster.Topic)) *cluster.Topic {
	c := *t
	c.Partitions = slices.Clone(t.Partitions)
	change(&c)
	c.Modified = m.view.Index
	m.put(&c)
	return &c
}

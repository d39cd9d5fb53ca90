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
	now     int64  // ms since 1970: the latest time any command carried
	shown   uint64 // the latest entry that may have changed what a snapshot shows
	view    cluster.Snapshot
	shared  shared // which maps of view a published snapshot holds too
	deleted []deletedTopic
	answers answers

	groups   map[ident.GroupID]*group
	captures uint64 // taken so far

	// Derived from the topics, and from the groups.
	partitions      int
	loads           map[ident.NodeID]placement.Load
	members         int
	groupPartitions int
	weight          int // of all progress, in bytes, about
}

type deletedTopic struct {
	Topic ident.TopicID
	Index uint64
}

type shared struct{ topics, nodes, deleted, groups bool }

// New is the state before the first command.
func New() *Machine {
	return &Machine{
		view: cluster.Snapshot{
			Topics:  map[string]*cluster.Topic{},
			ByID:    map[ident.TopicID]*cluster.Topic{},
			Nodes:   map[ident.NodeID]*cluster.Node{},
			Deleted: map[ident.TopicID]uint64{},
			Groups:  map[ident.TopicID]*cluster.GroupTable{},
		},
		answers: newAnswers(nil),
		groups:  map[ident.GroupID]*group{},
		loads:   map[ident.NodeID]placement.Load{},
	}
}

// Snapshot publishes the state as it is now. It never changes afterwards.
func (m *Machine) Snapshot() *cluster.Snapshot {
	m.shared = shared{true, true, true, true}
	s := m.view
	return &s
}

// Shown is the latest entry that may have changed anything of a Snapshot but its index.
func (m *Machine) Shown() uint64 { return m.shown }

// Apply applies one entry of the Raft log. It never panics: an error says that
// the entry cannot be applied by this program and that nothing was changed.
func (m *Machine) Apply(index uint64, command []byte) (cluster.Answer, error) {
	c, err := Decode(command)
	if err != nil {
		return cluster.Answer{}, fmt.Errorf("entry %d: %w", index, err)
	}
	if index <= m.view.Index {
		return cluster.Answer{}, fmt.Errorf("entry %d comes after entry %d", index, m.view.Index)
	}
	m.view.Index = index
	m.now = max(m.now, c.Time)

	if r, ok := m.answers.get(c.Request); ok {
		return m.again(r), nil
	}
	a := m.change(c)
	a.Index = index
	if c.Commit != nil { // it changes progress alone
		return a, nil
	}
	m.shown = index
	m.answers.add(remember(c.Request, &a))
	return a, nil
}

func (m *Machine) change(c *Command) cluster.Answer {
	switch {
	case c.Found != nil:
		if m.view.Cluster == (ident.ClusterID{}) {
			m.view.Cluster = c.Found.Cluster
		}
		return cluster.Answer{}
	case c.Register != nil && c.format == formatLone:
		return m.registerLone(c.Register.Node)
	case c.Register != nil:
		return m.register(c.Register)
	case c.Activate != nil:
		return m.activate(c.Activate)
	case c.Expire != nil:
		return m.expire(c.Expire)
	case c.Insync != nil:
		return m.insync(c.Insync)
	case c.Unfit != nil:
		return m.unfit(c.Unfit)
	case c.Elect != nil:
		return m.electAll(c.Elect)
	case c.Move != nil:
		return m.move(c.Move)
	case c.Drain != nil:
		return m.drain(c.Drain)
	case c.Retire != nil:
		return m.retire(c.Retire)
	case c.Create != nil:
		return m.create(c.Create)
	case c.Alter != nil:
		return m.alter(c.Alter)
	case c.Delete != nil:
		return m.delete(c.Delete.Name)
	case c.Purge != nil:
		return m.purge(c.Purge)
	default:
		return m.changeGroups(c)
	}
}

func (m *Machine) changeGroups(c *Command) cluster.Answer {
	switch {
	case c.GroupRegister != nil:
		return m.groupRegister(c.GroupRegister)
	case c.GroupAlter != nil:
		return m.groupAlter(c.GroupAlter)
	case c.GroupDelete != nil:
		return m.groupDelete(c.GroupDelete)
	case c.GroupReset != nil:
		return m.groupReset(c.GroupReset)
	case c.MemberJoin != nil:
		return m.memberJoin(c.MemberJoin)
	case c.MemberLeave != nil:
		return m.memberLeave(c.MemberLeave)
	case c.MemberLapse != nil:
		return m.memberLapse(c.MemberLapse)
	case c.Release != nil:
		return m.release(c.Release)
	case c.Clamp != nil:
		return m.clamp(c.Clamp)
	default: // Decode lets exactly one through
		return m.commit(c.Commit)
	}
}

func (m *Machine) again(r remembered) cluster.Answer {
	a := cluster.Answer{Index: r.Index, Created: r.Created, Epoch: r.Epoch, Taken: r.taken(), Refusal: r.Refusal, Member: r.Member}
	if r.Topic != nil {
		a.Topic = m.view.ByID[*r.Topic]
	}
	if r.Group != nil {
		if g := m.groups[*r.Group]; g != nil {
			a.Group = g.shown
		}
	}
	return a
}

func (m *Machine) time() time.Time { return time.UnixMilli(m.now).UTC() }

// put stores a topic, new or changed. The value must not be changed afterwards.
func (m *Machine) put(t *cluster.Topic) {
	m.ownTopics()
	old := m.view.ByID[t.ID]
	switch {
	case old == nil:
		m.count(t, +1)
	case len(old.Partitions) == len(t.Partitions):
		for k := range t.Partitions { // most commands change neither
			was, now := &old.Partitions[k], &t.Partitions[k]
			if was.Leader != now.Leader || !slices.Equal(was.Replicas, now.Replicas) {
				m.countPartition(was, -1)
				m.countPartition(now, +1)
			}
		}
	default:
		m.count(old, -1)
		m.count(t, +1)
	}
	m.view.Topics[t.Name] = t
	m.view.ByID[t.ID] = t
}

func (m *Machine) remove(t *cluster.Topic) {
	m.forgetGroupsOf(t.ID)
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
	m.ownNodes()
	m.view.Nodes[n.ID] = n
}

func (m *Machine) ownNodes() {
	if m.shared.nodes {
		m.view.Nodes = maps.Clone(m.view.Nodes)
		m.shared.nodes = false
	}
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
	for k := range t.Partitions {
		m.countPartition(&t.Partitions[k], sign)
	}
}

func (m *Machine) countPartition(p *cluster.Partition, sign int) {
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

// brokers counts the nodes that a topic can ask replicas of: also those that are
// dead and may return, but none in whose place another has come.
func (m *Machine) brokers() int {
	count := 0
	for _, n := range m.view.Nodes {
		if n.Broker() && n.Heir == (ident.NodeID{}) {
			count++
		}
	}
	return count
}

// open lists the load of every node that takes new replicas, in any order.
func (m *Machine) open() []placement.Load {
	var loads []placement.Load
	for id, n := range m.view.Nodes {
		if n.Broker() && n.Serves() && n.State != cluster.DrainingState {
			l := m.loads[id]
			l.Node, l.Zone = id, n.Zone
			loads = append(loads, l)
		}
	}
	return loads
}

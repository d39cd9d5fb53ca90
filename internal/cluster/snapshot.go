package cluster

import (
	"reflect"
	"slices"
	"time"

	"tidewire/internal/ident"
)

// Addresses of a node as others dial them, host:port.
type Addresses struct{ HTTP, RPC, Raft, Gossip string }

// NodeState is what the coordinator holds of a node's life.
type NodeState string

const (
	Alive         NodeState = "alive"
	Suspect       NodeState = "suspect"
	DrainingState NodeState = "draining"
	Dead          NodeState = "dead"
)

// Node is a registered node.
type Node struct {
	ID          ident.NodeID
	Name        string
	Zone        string
	Roles       []string
	Version     string
	Storage     ident.StorageID
	BrokerEpoch ident.BrokerEpoch // the Raft index of its latest registration
	Addresses   Addresses
	State       NodeState
	Since       time.Time // of the latest registration
	// Activated is the latest broker epoch that the node has noted in its data
	// folder: only then does it count as alive.
	Activated ident.BrokerEpoch `json:",omitempty"`
	// Boot names the life of the node's machine: what a topic of durability
	// "replicated" had only in memory does not survive another one. Empty: nobody knows,
	// so each registration may be of another one.
	Boot string `json:",omitempty"`
	// Ended is the latest broker epoch that was declared over.
	Ended ident.BrokerEpoch `json:",omitempty"`
	// Heir is the node that took this one's name after it had died: it came in its
	// place. Zero: none.
	Heir ident.NodeID `json:",omitzero"`
}

// Life is the latest life of the node.
func (n *Node) Life() Life { return Life{Node: n.ID, Epoch: n.BrokerEpoch} }

// Serves says that the latest life counts: it was activated and is not over.
func (n *Node) Serves() bool {
	return n.State == Alive || n.State == Suspect || n.State == DrainingState
}

// Over says that the latest life was declared over.
func (n *Node) Over() bool { return n.Ended == n.BrokerEpoch }

// Coming says that the latest life has registered and has yet to activate itself.
func (n *Node) Coming() bool { return !n.Serves() && !n.Over() }

// NameOf is what people call a node; its id where the snapshot does not say.
func (s *Snapshot) NameOf(id ident.NodeID) string {
	if n := s.Nodes[id]; n != nil && n.Name != "" {
		return n.Name
	}
	return id.String()
}

// NamesOf are what people call some nodes.
func (s *Snapshot) NamesOf(ids []ident.NodeID) []string {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = s.NameOf(id)
	}
	return names
}

// Ended says that a life of a node is over. One that is younger than the snapshot is not.
func (s *Snapshot) Ended(l Life) bool {
	n := s.Nodes[l.Node]
	if n == nil {
		return uint64(l.Epoch) <= s.Index // the epoch is the index of its registration
	}
	return n.BrokerEpoch > l.Epoch || n.Ended >= l.Epoch
}

// Broker says that the node has the broker role.
func (n *Node) Broker() bool { return slices.Contains(n.Roles, "broker") }

// Gateway says that the node has the gateway role.
func (n *Node) Gateway() bool { return slices.Contains(n.Roles, "gateway") }

// Snapshot is everything the coordinator holds, at one Raft index.
type Snapshot struct {
	Cluster ident.ClusterID
	Index   uint64
	Topics  map[string]*Topic // by name
	ByID    map[ident.TopicID]*Topic
	Nodes   map[ident.NodeID]*Node
	// Groups are the consumer groups of each topic that has any. No group is ever changed.
	Groups map[ident.TopicID]*GroupTable
	// GroupsGone are the groups that were deleted last, oldest first, those of deleted
	// topics apart, and GroupsFloor is the index up to which they are not remembered. Only
	// a coordinator knows, to tell others: these merely find a group no longer.
	GroupsGone  []GroupGone `json:"-"`
	GroupsFloor uint64      `json:"-"`
	// Deleted remembers the ids of deleted topics and the index at which they
	// went, so that a broker deletes only what was deleted, never what it
	// merely does not find.
	Deleted map[ident.TopicID]uint64
	// DeletedFloor is the index of the latest deletion that Deleted no longer
	// remembers. A topic that went at or below it cannot be told from one that
	// never was, so its data is put aside, not deleted. 0: nothing is forgotten.
	DeletedFloor uint64
}

// Topic finds a topic by name.
func (s *Snapshot) Topic(name string) (*Topic, bool) {
	if s == nil {
		return nil, false
	}
	t, ok := s.Topics[name]
	return t, ok
}

// Group finds a consumer group of a topic by its name.
func (s *Snapshot) Group(topic ident.TopicID, name string) (*Group, bool) {
	if s == nil {
		return nil, false
	}
	g := s.Groups[topic].Get(name)
	return g, g != nil
}

// Equal says whether both describe a node alike.
func (n *Node) Equal(o *Node) bool {
	a, b := *n, *o
	same := slices.Equal(a.Roles, b.Roles) && a.Since.Equal(b.Since)
	a.Roles, b.Roles, a.Since, b.Since = nil, nil, time.Time{}, time.Time{}
	return same && reflect.DeepEqual(a, b)
}

package state

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// register begins a node's new life: its broker epoch is the entry's index, and
// every partition it leads begins a new leader epoch in the same command, so
// that nothing its former life still has under way can be taken for the new
// one's.
//
// A node that comes back with another storage id has lost the data folder the
// cluster knew, or was given another's. It leaves every ISR before it may serve.
// Where it is the only in-sync replica the whole registration is refused: a
// partition that went on empty under the same topic id would deny records that
// were acknowledged. A node that held no partition may change its folder freely.
func (m *Machine) register(n cluster.Node) Answer {
	if r := m.checkNode(&n); r != nil {
		return Answer{Refusal: r}
	}
	known := m.view.Nodes[n.ID]
	foreign := known != nil && known.Storage != n.Storage
	if foreign {
		if r := m.checkForeign(known, &n); r != nil {
			return Answer{Refusal: r}
		}
	}

	n.BrokerEpoch = ident.BrokerEpoch(m.view.Index)
	n.State = cluster.Alive
	n.Since = m.time()
	n.Roles = slices.Clone(n.Roles)
	m.putNode(&n)

	for _, name := range slices.Sorted(maps.Keys(m.view.Topics)) {
		t := m.view.Topics[name]
		if slices.ContainsFunc(t.Partitions, func(p cluster.Partition) bool { return concerns(&p, n.ID) }) {
			m.edit(t, func(t *cluster.Topic) {
				for i := range t.Partitions {
					if p := &t.Partitions[i]; concerns(p, n.ID) {
						reborn(p, n.ID, foreign)
					}
				}
			})
		}
	}
	return Answer{Epoch: n.BrokerEpoch}
}

func concerns(p *cluster.Partition, n ident.NodeID) bool {
	return p.Leader == n || slices.Contains(p.ISR, n)
}

// reborn is what a new life of node n means for a partition it leads or is in sync with.
func reborn(p *cluster.Partition, n ident.NodeID, foreign bool) {
	if foreign {
		p.ISR = slices.DeleteFunc(slices.Clone(p.ISR), func(o ident.NodeID) bool { return o == n })
		if p.Leader == n {
			p.Leader = p.ISR[0] // checkForeign made sure of one
			p.LeaderEpoch++
		}
		p.Version++
		return
	}
	lone := len(p.ISR) == 1 && p.ISR[0] == n
	if p.Leader == n || lone {
		p.Leader = n
		p.LeaderEpoch++
		p.Version++
	}
}

func (m *Machine) checkForeign(known, n *cluster.Node) *Refusal {
	sole := 0
	for _, t := range m.view.Topics {
		for i := range t.Partitions {
			if p := &t.Partitions[i]; len(p.ISR) == 1 && p.ISR[0] == n.ID {
				sole++
			}
		}
	}
	if sole == 0 {
		return nil
	}
	r := refuse(fault.Invalid, fmt.Sprintf("node %s has the storage id %s, but the cluster knows it with %s and %d partitions have their only in-sync replica there: "+
		"the broker's data folder was lost or exchanged. Restore that folder (or all of the data folder from one backup); to give up its records for good, start with an empty data folder",
		n.Name, n.Storage, known.Storage, sole))
	r.Field = "storage"
	r.Allowed = known.Storage.String()
	return r
}

func (m *Machine) checkNode(n *cluster.Node) *Refusal {
	invalid := func(field, allowed string) *Refusal {
		r := refuse(fault.Invalid, fmt.Sprintf("a node's %s must be %s", field, allowed))
		r.Field, r.Allowed = field, allowed
		return r
	}
	switch {
	case n.ID == (ident.NodeID{}):
		return invalid("id", "a UUID other than nil")
	case n.Name == "" || len(n.Name) > ident.MaxNameBytes:
		return invalid("name", fmt.Sprintf("1 to %d bytes", ident.MaxNameBytes))
	case len(n.Roles) == 0:
		return invalid("roles", "at least one of gateway, broker, coordinator")
	}
	for _, role := range n.Roles {
		if role != "gateway" && role != "broker" && role != "coordinator" {
			return invalid("roles", "of gateway, broker, coordinator")
		}
	}
	// In the order of ids, so that every coordinator names the same one.
	for _, id := range slices.SortedFunc(maps.Keys(m.view.Nodes), func(a, b ident.NodeID) int { return bytes.Compare(a[:], b[:]) }) {
		if other := m.view.Nodes[id]; id != n.ID && other.Name == n.Name {
			r := refuse(fault.Invalid, fmt.Sprintf("the name %q belongs to node %s already; give this node another --name", n.Name, id))
			r.Field = "name"
			return r
		}
	}
	return nil
}

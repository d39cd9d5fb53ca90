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
// with it the former life is over. What that one led gets another leader in the same
// command; where nobody else in sync is alive the partition waits until this life is
// activated. The node stays in the ISRs: that a process stopped says nothing about its
// disk (rule C2).
//
// Three things say otherwise. Another storage id, or a folder whose noted broker epoch
// is not one that this node can have noted last, is another folder or an older copy: it
// leaves every ISR and ELR before it may serve. Where nobody else has anything, the whole
// registration is refused: a partition that went on empty under the same topic id would
// deny records that were acknowledged. A node that holds nothing may change its folder
// freely. Logs that are damaged or short, and for topics that are durable by
// replication another life of the machine, count for their partitions alone, and there
// the node stays where nobody else has anything. What it leads then begins another truth,
// if its machine has forgotten records: the next leader epoch is an unclean one.
func (m *Machine) register(c *cluster.Register) cluster.Answer {
	n := c.Node
	if r := m.checkNode(&n); r != nil {
		return cluster.Answer{Refusal: r}
	}
	if r := m.checkNewcomer(&n, c.Unfit); r != nil {
		return cluster.Answer{Refusal: r}
	}
	known := m.view.Nodes[n.ID]
	lost, rebooted, activated := false, false, ident.BrokerEpoch(0)
	if known != nil {
		// A registration that nobody waits for any more may come late, so the node may
		// have noted any epoch since the last that it activated.
		lost = known.Storage != n.Storage || c.Last < known.Activated || known.BrokerEpoch < c.Last
		rebooted = known.Boot != n.Boot || n.Boot == ""
		activated = known.Activated
		if !lost {
			activated = c.Last // noted, though its Activate may never have come
		}
	}
	if lost {
		if r := m.checkLost(known, &n); r != nil {
			return cluster.Answer{Refusal: r}
		}
	}
	m.begin(&n, activated)
	m.putNode(&n)

	unfit := make(map[ident.Partition]bool, len(c.Unfit))
	for _, ref := range c.Unfit {
		unfit[ref] = true
	}
	b := m.begins()
	b.each(func(p *cluster.Partition) bool { return concerns(p, n.ID) }, func(t *cluster.Topic, p *cluster.Partition) {
		forgot := rebooted && restsOnMemory(t, n.ID)
		if lost || unfit[t.Ref(p.Index)] || forgot {
			b.disqualifies(t, p, n.ID)
		}
		switch {
		case !n.Broker():
			b.bereaves(t, p)
		case p.Leader == n.ID:
			b.steps(t, p)
		}
		if forgot && last(p, n.ID) {
			p.Unclean = p.LeaderEpoch + 1 // others may have more than what it forgot, and are to follow it
		}
	})
	if rebooted {
		b.forgets(n.ID)
	}
	b.done()
	return cluster.Answer{Epoch: n.BrokerEpoch}
}

// restsOnMemory says whether a node may have acknowledged records of a topic, in the former
// life of its machine, that were on no disk.
func restsOnMemory(t *cluster.Topic, n ident.NodeID) bool {
	return t.Settings.Durability == cluster.Replicated || slices.Contains(t.Volatile, n)
}

// forgets says that what a node acknowledges from now on is no more than the settings of
// topics let it be.
func (b *batch) forgets(n ident.NodeID) {
	for id, t := range b.m.view.ByID { // in any order
		if slices.Contains(t.Volatile, n) {
			own := b.own(b.topic(id))
			own.Volatile = without(own.Volatile, n)
		}
	}
}

// begin fills in what the coordinator decides of a new life.
func (m *Machine) begin(n *cluster.Node, activated ident.BrokerEpoch) {
	n.BrokerEpoch = ident.BrokerEpoch(m.view.Index)
	n.State = cluster.Dead
	n.Since = m.time()
	n.Activated = activated
	n.Ended = 0
	n.Heir = ident.NodeID{}
	n.Roles = slices.Clone(n.Roles)
	for _, o := range m.sortedNodes() {
		if o.ID != n.ID && o.Name == n.Name { // dead, as checkNode made sure: this one comes in its place
			dead := *o
			dead.Heir = n.ID
			m.putNode(&dead)
		}
	}
}

// steps takes the lead off a leader whose former life is over and whose new one does
// not count yet. Nobody of the ELR is asked: the leader itself is about to return with
// all it had.
func (b *batch) steps(t *cluster.Topic, p *cluster.Partition) {
	if !b.leadsBest(t, p, p.ISR) {
		b.leadsNone(p)
	}
}

// checkLost refuses a node that lost its folder where it alone has anything.
func (m *Machine) checkLost(known, n *cluster.Node) *cluster.Refusal {
	sole := 0
	for _, t := range m.view.Topics {
		for i := range t.Partitions {
			if p := &t.Partitions[i]; slices.Contains(p.ISR, n.ID) && last(p, n.ID) {
				sole++
			}
		}
	}
	if sole == 0 {
		return nil
	}
	if known.Storage == n.Storage {
		r := refuse(fault.Invalid, fmt.Sprintf("node %s comes with an older copy of its data folder, and %d partitions have their only in-sync replica there: "+
			"the copy lacks what was acknowledged since. Restore the folder as it was last; to give up its records for good, start with an empty data folder", n.Name, sole))
		r.Field = "data"
		return r
	}
	r := refuse(fault.Invalid, fmt.Sprintf("node %s has the storage id %s, but the cluster knows it with %s and %d partitions have their only in-sync replica there: "+
		"the broker's data folder was lost or exchanged. Restore that folder (or all of the data folder from one backup); to give up its records for good, start with an empty data folder",
		n.Name, n.Storage, known.Storage, sole))
	r.Field = "storage"
	r.Allowed = known.Storage.String()
	return r
}

// maxTextBytes bounds each text that a node says of itself.
const maxTextBytes = 512

// checkNewcomer checks what format 1 did not.
func (m *Machine) checkNewcomer(n *cluster.Node, unfit []ident.Partition) *cluster.Refusal {
	if m.view.Nodes[n.ID] == nil && len(m.view.Nodes) >= cluster.MaxNodes {
		return refuse(fault.Limit, fmt.Sprintf("the cluster has %d nodes, as many as it may; one that is dead for good goes with its replicas", cluster.MaxNodes))
	}
	if len(n.Roles) > 3 {
		return refuse(fault.Invalid, fmt.Sprintf("a node has up to 3 roles, not %d", len(n.Roles)))
	}
	a := &n.Addresses
	for _, text := range []string{n.Zone, n.Version, n.Boot, a.HTTP, a.RPC, a.Raft, a.Gossip} {
		if len(text) > maxTextBytes {
			return refuse(fault.Invalid, fmt.Sprintf("a node's zone, version, boot id and addresses have up to %d bytes, not %d", maxTextBytes, len(text)))
		}
	}
	return tooMany("damaged partitions", len(unfit), cluster.MaxUnfit)
}

func (m *Machine) checkNode(n *cluster.Node) *cluster.Refusal {
	invalid := func(field, allowed string) *cluster.Refusal {
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
	for _, other := range m.sortedNodes() {
		if other.ID != n.ID && other.Name == n.Name && !other.Over() {
			r := refuse(fault.Invalid, fmt.Sprintf("the name %q belongs to node %s already; give this node another --name", n.Name, other.ID))
			r.Field = "name"
			return r
		}
	}
	return nil
}

func (m *Machine) sortedNodes() []*cluster.Node {
	return slices.SortedFunc(maps.Values(m.view.Nodes), func(a, b *cluster.Node) int { return bytes.Compare(a.ID[:], b.ID[:]) })
}

package state

import (
	"fmt"
	"slices"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// activate lets a node's registered life count: it is alive, and leads what has
// waited for it. To say it again changes nothing; a drain goes on.
func (m *Machine) activate(c *cluster.Activate) cluster.Answer {
	n := m.view.Nodes[c.Node]
	if n == nil || n.BrokerEpoch != c.Epoch || n.Over() {
		return cluster.Answer{Refusal: fenced(cluster.Life{Node: c.Node, Epoch: c.Epoch})}
	}
	if n.Serves() && n.Activated == c.Epoch {
		return cluster.Answer{}
	}
	now := *n
	now.State = cluster.Alive
	now.Activated = c.Epoch
	m.putNode(&now)
	if !now.Broker() {
		return cluster.Answer{}
	}

	b := m.begins()
	b.each(func(p *cluster.Partition) bool {
		return (p.Leader == (ident.NodeID{}) || moving(p)) && slices.Contains(p.Replicas, c.Node)
	}, func(t *cluster.Topic, p *cluster.Partition) {
		if p.Leader == (ident.NodeID{}) {
			b.elects(t, p)
		} // else a move that waited for the node ends, as edit sees to
	})
	b.done()
	return cluster.Answer{}
}

// expire declares lives over, all of them before any partition is looked at, so
// that the order in which they are named elects nobody who is dead.
func (m *Machine) expire(c *cluster.Expire) cluster.Answer {
	if r := tooMany("lives of an expiry", len(c.Lives), cluster.MaxNodes); r != nil {
		return cluster.Answer{Refusal: r}
	}
	dead := map[ident.NodeID]bool{}
	for _, l := range c.Lives {
		n := m.view.Nodes[l.Node]
		if n == nil || n.BrokerEpoch != l.Epoch || n.Over() {
			continue
		}
		now := *n
		now.State = cluster.Dead
		now.Ended = l.Epoch
		m.putNode(&now)
		dead[l.Node] = true
	}
	if len(dead) == 0 {
		return cluster.Answer{}
	}
	b := m.begins()
	isDead := func(n ident.NodeID) bool { return dead[n] }
	b.each(func(p *cluster.Partition) bool {
		return dead[p.Leader] || slices.ContainsFunc(p.ISR, isDead) || slices.ContainsFunc(p.ELR, isDead)
	}, b.bereaves)
	b.done()
	return cluster.Answer{}
}

// bereaves is what the end of lives means for a partition.
func (b *batch) bereaves(t *cluster.Topic, p *cluster.Partition) {
	if !b.m.live(p.Leader) {
		b.elects(t, p)
		return
	}
	leaves(p, t.Settings.MinInsync, b.m.gone)
}

// drain takes the lead of everything off a node, or ends that. What nobody else in
// sync can lead stays; the planner of the coordinator hands it over as soon as
// somebody can.
func (m *Machine) drain(c *cluster.Drain) cluster.Answer {
	n := m.view.Nodes[c.Node]
	if n == nil {
		return cluster.Answer{Refusal: noNode(c.Node)}
	}
	now := *n
	if c.Cancel {
		if n.State == cluster.DrainingState {
			now.State = cluster.Alive
			m.putNode(&now)
		}
		return cluster.Answer{}
	}
	if !n.Serves() {
		return cluster.Answer{Refusal: refuse(fault.Invalid, fmt.Sprintf("node %s is %s: only a node that is alive can be drained", n.Name, n.State))}
	}
	now.State = cluster.DrainingState
	m.putNode(&now)

	b := m.begins()
	b.each(func(p *cluster.Partition) bool { return p.Leader == c.Node }, func(t *cluster.Topic, p *cluster.Partition) {
		if other, ok := b.best(p.ISR); ok && !m.draining(other) {
			b.hands(t, p, other)
		}
	})
	b.done()
	return cluster.Answer{}
}

// retire forgets a node that is dead and holds nothing.
func (m *Machine) retire(c *cluster.Retire) cluster.Answer {
	n := m.view.Nodes[c.Node]
	switch {
	case n == nil:
		return cluster.Answer{Refusal: noNode(c.Node)}
	case !n.Over():
		return cluster.Answer{Refusal: refuse(fault.Invalid, fmt.Sprintf("node %s is not dead: stop it first", n.Name))}
	case m.loads[c.Node].Replicas > 0:
		return cluster.Answer{Refusal: refuse(fault.Invalid, fmt.Sprintf("node %s still holds %d replicas; they are moved first", n.Name, m.loads[c.Node].Replicas))}
	}
	m.ownNodes()
	delete(m.view.Nodes, c.Node)
	delete(m.loads, c.Node)
	return cluster.Answer{}
}

func noNode(id ident.NodeID) *cluster.Refusal {
	return refuse(fault.NodeNotFound, fmt.Sprintf("there is no node %s", id))
}

// serves says whether a life is one that counts.
func (m *Machine) serves(l cluster.Life) bool {
	n := m.view.Nodes[l.Node]
	return n != nil && n.BrokerEpoch == l.Epoch && n.Serves()
}

func fenced(l cluster.Life) *cluster.Refusal {
	return refuse(fault.Fenced, fmt.Sprintf("broker epoch %d of node %s is over or unknown; register again", l.Epoch, l.Node))
}

func tooMany(what string, n, most int) *cluster.Refusal {
	if n <= most {
		return nil
	}
	return refuse(fault.Invalid, fmt.Sprintf("%d %s are more than the %d that one change may name", n, what, most))
}

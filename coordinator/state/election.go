package state

import (
	"cmp"
	"slices"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// live says that a node can lead and follow.
func (m *Machine) live(id ident.NodeID) bool {
	n := m.view.Nodes[id]
	return n != nil && n.Serves() && n.Broker()
}

// gone says that nobody need wait for a node: its life is over, or it is no broker
// any more. A node that has registered and not activated is neither live nor gone.
func (m *Machine) gone(id ident.NodeID) bool {
	n := m.view.Nodes[id]
	return n == nil || n.Over() || !n.Broker()
}

func (m *Machine) draining(id ident.NodeID) bool {
	n := m.view.Nodes[id]
	return n != nil && n.State == cluster.DrainingState
}

// leaves takes nodes out of the ISR for lag, death or drain. Where the rest is then
// too small for the high watermark to move, they hold all that is committed until
// it is large enough again, and stay electable so long (rules A3 and A7).
func leaves(p *cluster.Partition, minInsync int, goes func(ident.NodeID) bool) {
	var left []ident.NodeID
	p.ISR, left = keep(p.ISR, func(n ident.NodeID) bool { return !goes(n) }), keep(p.ISR, goes)
	if len(p.ISR) < minInsync {
		p.ELR = slices.Concat(p.ELR, left)
	}
}

// loses takes a node out of ISR and ELR because it may lack records. The caller
// has made sure that somebody is left in one of them; if only in the ELR, those are
// what is in sync now: they hold all that is committed.
func loses(p *cluster.Partition, n ident.NodeID) {
	p.ISR, p.ELR = without(p.ISR, n), without(p.ELR, n)
	if len(p.ISR) == 0 {
		p.ISR, p.ELR = p.ELR, nil
	}
}

// last says that a node is the only one that holds all that is committed.
func last(p *cluster.Partition, n ident.NodeID) bool {
	return len(without(p.ISR, n)) == 0 && len(without(p.ELR, n)) == 0
}

// elects gives a partition whose leader cannot go on another one: from the live
// ISR, else from the live ELR, else, if the topic puts serving above keeping, any live
// replica; else none, and then the ISR stays as it is, whoever dies meanwhile, so
// that the first of it that comes back leads (rule A3).
func (b *batch) elects(t *cluster.Topic, p *cluster.Partition) {
	coming := func(n ident.NodeID) bool { return !b.m.live(n) && !b.m.gone(n) }
	switch {
	case b.leadsBest(t, p, p.ISR), b.leadsBest(t, p, p.ELR):
	case !t.Settings.Unclean || slices.ContainsFunc(p.ISR, coming) || slices.ContainsFunc(p.ELR, coming):
		b.leadsNone(p)
	default:
		n, ok := b.best(p.Replicas)
		if !ok {
			b.leadsNone(p)
			return
		}
		b.leadsUncleanly(p, n)
	}
}

// leadsUncleanly gives the lead to a node that may lack records: what it has is what there
// is from then on.
func (b *batch) leadsUncleanly(p *cluster.Partition, n ident.NodeID) {
	b.leads(p, n)
	p.ISR, p.ELR = []ident.NodeID{n}, nil
	p.Unclean = p.LeaderEpoch
	p.Unclamped = cmp.Or(p.Unclamped, p.LeaderEpoch)
}

func (b *batch) leadsBest(t *cluster.Topic, p *cluster.Partition, of []ident.NodeID) bool {
	n, ok := b.best(of)
	if ok {
		b.hands(t, p, n)
	}
	return ok
}

// best chooses a leader: a live node, rather one that stays than one that drains,
// and of those the one that leads the fewest partitions, the earliest among equals.
func (b *batch) best(of []ident.NodeID) (best ident.NodeID, ok bool) {
	bestDrains, bestLeads := false, 0
	for _, n := range of {
		if !b.m.live(n) {
			continue
		}
		drains, leads := b.m.draining(n), b.m.loads[n].Leaders+b.led[n]
		better := bestDrains && !drains || bestDrains == drains && leads < bestLeads
		if !ok || better {
			best, ok, bestDrains, bestLeads = n, true, drains, leads
		}
	}
	return best, ok
}

// hands gives the lead to a member of ISR or ELR, who is in the ISR with that.
// Those whose lives are over leave the ISR: a partition that has a leader waits for
// nobody who is dead.
func (b *batch) hands(t *cluster.Topic, p *cluster.Partition, n ident.NodeID) {
	if !slices.Contains(p.ISR, n) {
		p.ISR = append(slices.Clone(p.ISR), n)
		p.ELR = without(p.ELR, n)
	}
	leaves(p, t.Settings.MinInsync, b.m.gone)
	b.leads(p, n)
}

// takesOver gives the lead to a member of the ELR, while the ISR is too small to commit
// anything and its leader reaches nobody who would make it large enough (rule C3). Who may
// be elected stays the same: all of them hold what is committed, and nothing more is
// before the ISR has grown. In sync is the new leader alone, so it waits for nobody whom
// it cannot reach either, least of all for its predecessor, and takes in whom it reaches.
func (b *batch) takesOver(p *cluster.Partition, n ident.NodeID) {
	p.ELR = without(slices.Concat(p.ISR, p.ELR), n)
	p.ISR = []ident.NodeID{n}
	b.leads(p, n)
}

// leads begins a leader epoch.
func (b *batch) leads(p *cluster.Partition, n ident.NodeID) {
	b.led[p.Leader]--
	b.led[n]++
	p.Leader = n
	p.LeaderEpoch++
}

// leadsNone leaves a partition without a leader. That, too, begins an epoch, so that
// the former leader's is over.
func (b *batch) leadsNone(p *cluster.Partition) {
	if p.Leader != (ident.NodeID{}) {
		b.leads(p, ident.NodeID{})
	}
}

// electAll gives partitions the leaders that a change names.
func (m *Machine) electAll(c *cluster.Elect) cluster.Answer {
	if r := tooMany("partitions of an election", len(c.Of), cluster.MaxParts); r != nil {
		return cluster.Answer{Refusal: r}
	}
	b := m.begins()
	taken := make([]bool, len(c.Of))
	for i, e := range c.Of {
		t, p := b.find(e.Partition)
		if p == nil || p.Version != e.Version || !m.live(e.Leader) {
			continue
		}
		switch {
		case p.Leader == e.Leader:
		case slices.Contains(p.ISR, e.Leader):
			b.edit(e.Partition, func(t *cluster.Topic, p *cluster.Partition) { b.hands(t, p, e.Leader) })
		case e.Takeover && slices.Contains(p.ELR, e.Leader):
			b.edit(e.Partition, func(_ *cluster.Topic, p *cluster.Partition) { b.takesOver(p, e.Leader) })
		case e.Unclean != 0 && t.Settings.Unclean && m.mayInherit(p, &e):
			b.edit(e.Partition, func(_ *cluster.Topic, p *cluster.Partition) { b.leadsUncleanly(p, e.Leader) })
		default:
			continue
		}
		taken[i] = true
	}
	b.done()
	return cluster.Answer{Taken: taken}
}

// mayInherit says whether a replica may lead in the place of a leader that is damaged and
// has nobody beside it: in the life in which it got what can be read there, since another
// one may have lost that.
func (m *Machine) mayInherit(p *cluster.Partition, e *cluster.ElectOf) bool {
	return p.Leader != (ident.NodeID{}) && last(p, p.Leader) && slices.Contains(p.Replicas, e.Leader) && m.view.Nodes[e.Leader].BrokerEpoch == e.Unclean
}

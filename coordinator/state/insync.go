package state

import (
	"cmp"
	"slices"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// insync changes ISRs as their leader asks, by compare-and-set: each part rests on
// the leader's life, its epoch and the partition's version. A part that is taken
// moves the version, also where the ISR was that one already, so that its leader
// sees what became of it.
func (m *Machine) insync(c *cluster.Insync) cluster.Answer {
	if r := tooMany("partitions of an ISR change", len(c.Of), cluster.MaxParts); r != nil {
		return cluster.Answer{Refusal: r}
	}
	if !m.serves(c.Leader) {
		return cluster.Answer{Refusal: fenced(c.Leader)}
	}
	b := m.begins()
	taken := make([]bool, len(c.Of))
	for i := range c.Of {
		o := &c.Of[i]
		_, p := b.find(o.Partition)
		if p == nil || p.Leader != c.Leader.Node || p.LeaderEpoch != o.Epoch || p.Version != o.Version || !m.mayBeInsync(p, o.ISR) {
			continue
		}
		taken[i] = true
		b.edit(o.Partition, func(t *cluster.Topic, p *cluster.Partition) {
			joined := make([]ident.NodeID, len(o.ISR))
			for k, l := range o.ISR {
				joined[k] = l.Node
			}
			stays := func(n ident.NodeID) bool { return slices.Contains(joined, n) }
			p.ISR = slices.Concat(p.ISR, keep(joined, func(n ident.NodeID) bool { return !slices.Contains(p.ISR, n) }))
			p.ELR = keep(p.ELR, func(n ident.NodeID) bool { return !stays(n) })
			leaves(p, t.Settings.MinInsync, func(n ident.NodeID) bool { return !stays(n) })
			p.Version++ // edit sees it as a change
		})
	}
	b.done()
	return cluster.Answer{Taken: taken}
}

// mayBeInsync says whether a proposed ISR holds the leader, replicas only, each
// once, and whether those who would join it are alive in the life that the leader
// has heard from: another life may have lost what the former one had. Who is in it
// already stays under the rules for that, whatever life it is in.
func (m *Machine) mayBeInsync(p *cluster.Partition, isr []cluster.Life) bool {
	leader := false
	for i, l := range isr {
		if !slices.Contains(p.Replicas, l.Node) || slices.ContainsFunc(isr[:i], func(o cluster.Life) bool { return o.Node == l.Node }) {
			return false
		}
		leader = leader || l.Node == p.Leader
		if !slices.Contains(p.ISR, l.Node) && (!m.live(l.Node) || m.view.Nodes[l.Node].BrokerEpoch != l.Epoch) {
			return false
		}
	}
	return leader
}

// unfit takes a node out of the ISR and ELR of partitions of which it may have lost
// records. It may say so before it is activated.
func (m *Machine) unfit(c *cluster.Unfit) cluster.Answer {
	if r := tooMany("damaged partitions", len(c.Partitions), cluster.MaxUnfit); r != nil {
		return cluster.Answer{Refusal: r}
	}
	if n := m.view.Nodes[c.Life.Node]; n == nil || n.BrokerEpoch != c.Life.Epoch || n.Over() {
		return cluster.Answer{Refusal: fenced(c.Life)}
	}
	b := m.begins()
	for _, ref := range c.Partitions {
		b.edit(ref, func(t *cluster.Topic, p *cluster.Partition) { b.disqualifies(t, p, c.Life.Node) })
	}
	b.done()
	return cluster.Answer{}
}

// disqualifies takes a node that may have lost records of a partition out of its ISR
// and ELR. Where nobody else has anything it stays, and what it lost nobody has.
func (b *batch) disqualifies(t *cluster.Topic, p *cluster.Partition, n ident.NodeID) {
	switch {
	case !slices.Contains(p.ISR, n) && !slices.Contains(p.ELR, n):
		return
	case last(p, n):
		p.Unclamped = cmp.Or(p.Unclamped, p.LeaderEpoch+1)
		return
	}
	loses(p, n)
	if p.Leader == n || p.Leader == (ident.NodeID{}) {
		b.elects(t, p)
	}
}

package state

import (
	"slices"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// move begins and cancels moves of replicas, and says which of them is to lead.
func (m *Machine) move(c *cluster.Move) cluster.Answer {
	if r := tooMany("partitions of a move", len(c.Of), cluster.MaxParts); r != nil {
		return cluster.Answer{Refusal: r}
	}
	b := m.begins()
	taken := make([]bool, len(c.Of))
	for i := range c.Of {
		o := &c.Of[i]
		t, p := b.find(o.Partition)
		if p == nil || p.Version != o.Version {
			continue
		}
		if o.First != (ident.NodeID{}) {
			k := slices.Index(p.Replicas, o.First)
			if k < 0 || moving(p) || len(o.Add) > 0 || len(o.Remove) > 0 {
				continue
			}
			taken[i] = true
			b.edit(o.Partition, func(_ *cluster.Topic, p *cluster.Partition) {
				p.Replicas = slices.Clone(p.Replicas)
				p.Replicas[0], p.Replicas[k] = p.Replicas[k], p.Replicas[0]
			})
			continue
		}
		if len(o.Add) == 0 && len(o.Remove) == 0 {
			b.edit(o.Partition, func(t *cluster.Topic, p *cluster.Partition) { taken[i] = b.cancels(t, p) })
			continue
		}
		if !m.mayMove(t, p, o) {
			continue
		}
		taken[i] = true
		b.edit(o.Partition, func(_ *cluster.Topic, p *cluster.Partition) {
			come := without(o.Add, p.Replicas...) // the others were to go, and stay
			p.Replicas = slices.Concat(p.Replicas, come)
			p.Adding = slices.Concat(without(p.Adding, o.Remove...), come)
			p.Removing = slices.Concat(without(p.Removing, o.Add...), o.Remove)
		})
	}
	b.done()
	return cluster.Answer{Taken: taken}
}

// mayMove says whether a move can begin: those that come are live brokers that stay,
// those that go hold a replica, and in the end there are neither more replicas than the
// topic asks for nor fewer than now.
//
// One move at a time. But one under way may lack somebody before it can end, because the
// topic asks for more by now or others have died, who came for it or not: it is given who
// comes in their place. That can be one who was to go.
func (m *Machine) mayMove(t *cluster.Topic, p *cluster.Partition, o *cluster.MoveOf) bool {
	stay := without(p.Replicas, p.Removing...)
	for i, n := range o.Add {
		if !m.live(n) || m.draining(n) || slices.Contains(stay, n) || slices.Contains(o.Add[:i], n) {
			return false
		}
	}
	for i, n := range o.Remove {
		if !slices.Contains(stay, n) || slices.Contains(o.Remove[:i], n) || moving(p) && !m.gone(n) {
			return false
		}
	}
	want, now := t.Settings.Replicas, len(stay)
	then := now + len(o.Add) - len(o.Remove)
	return then >= min(now, want) && then <= max(now, want) && then > 0
}

func moving(p *cluster.Partition) bool { return len(p.Adding) > 0 || len(p.Removing) > 0 }

// completes ends a move if all that came are in sync and enough of the ISR stays
// without those that go. Those that came take the places of those that go, so the
// preferred leader moves with its replica.
func (b *batch) completes(t *cluster.Topic, p *cluster.Partition) {
	if !moving(p) || slices.ContainsFunc(p.Adding, func(n ident.NodeID) bool { return !slices.Contains(p.ISR, n) }) {
		return
	}
	replicas, came := slices.Clone(p.Replicas), p.Adding
	for _, n := range p.Removing {
		if len(came) == 0 {
			break
		}
		i, k := slices.Index(replicas, n), slices.Index(replicas, came[0])
		replicas[i], replicas[k] = replicas[k], replicas[i]
		came = came[1:]
	}
	if b.shrinks(t, p, replicas, p.Removing) {
		p.Adding, p.Removing = nil, nil
	}
}

// cancels ends a move as if it had not begun: those that came go, and as many of those
// that were to go as came before they died.
func (b *batch) cancels(t *cluster.Topic, p *cluster.Partition) bool {
	if !moving(p) {
		return false
	}
	goes := p.Adding
	if over := len(p.Replicas) - len(goes) - t.Settings.Replicas; over > 0 {
		goes = slices.Concat(goes, p.Removing[len(p.Removing)-over:])
	}
	if !b.shrinks(t, p, p.Replicas, goes) {
		return false
	}
	p.Adding, p.Removing = nil, nil
	return true
}

// shrinks takes replicas away, where what stays in sync is at least min_insync (rule
// A2) and has somebody who can lead. It may have to hand over the lead first.
func (b *batch) shrinks(t *cluster.Topic, p *cluster.Partition, replicas, goes []ident.NodeID) bool {
	isr := without(p.ISR, goes...)
	if len(goes) > 0 && (len(isr) < t.Settings.MinInsync || len(isr) == 0) {
		return false
	}
	replicas = without(replicas, goes...)
	leader := p.Leader
	if slices.Contains(goes, leader) {
		var ok bool
		if leader, ok = b.successor(replicas, isr); !ok {
			return false
		}
	}
	p.Replicas, p.ISR, p.ELR = replicas, isr, without(p.ELR, goes...)
	if leader != p.Leader {
		b.leads(p, leader)
	}
	return true
}

// successor is the first of the replicas that is in the ISR and can lead, rather one
// that does not drain.
func (b *batch) successor(replicas, isr []ident.NodeID) (ident.NodeID, bool) {
	can := keep(replicas, func(n ident.NodeID) bool { return slices.Contains(isr, n) && b.m.live(n) })
	if i := slices.IndexFunc(can, func(n ident.NodeID) bool { return !b.m.draining(n) }); i >= 0 {
		return can[i], true
	}
	if len(can) > 0 {
		return can[0], true
	}
	return ident.NodeID{}, false
}

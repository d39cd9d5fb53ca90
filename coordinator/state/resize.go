package state

import (
	"cmp"
	"fmt"
	"slices"

	"tidewire/coordinator/placement"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// restate changes what is part of every partition's versioned state: how many
// replicas, how many of them in sync (rule A2). With min_insync the ELR changes in the
// same command.
func (m *Machine) restate(t *cluster.Topic, s cluster.Settings) cluster.Answer {
	b := m.begins()
	before := t.Settings
	own := b.own(t)
	settles(own, s)
	loads := m.open()
	for k := range own.Partitions {
		i := own.Partitions[k].Index
		fits := true
		b.edit(own.Ref(i), func(t *cluster.Topic, p *cluster.Partition) {
			p.Version++ // edit sees it as a change
			if p.Leader == (ident.NodeID{}) {
				b.elects(t, p)
			}
			switch {
			case s.Replicas == before.Replicas:
			case s.Replicas > len(p.Replicas):
				m.grows(p, s.Replicas, loads)
			default:
				fits = b.lessens(t, p)
			}
		})
		if !fits {
			isr := own.Partitions[k].ISR
			r := refuse(fault.Invalid, fmt.Sprintf("%s %d would leave partition %d, of whose replicas %d are in sync, with fewer than %s %d of those; wait until its replicas have caught up",
				fieldReplicas, s.Replicas, i, len(isr), fieldMinInsync, s.MinInsync))
			r.Field = fieldReplicas
			return cluster.Answer{Refusal: r}
		}
	}
	b.done()
	return cluster.Answer{Topic: m.view.ByID[t.ID]}
}

// grows gives a partition more replicas, as far as there are nodes for them. They
// are outside the ISR until they have caught up.
func (m *Machine) grows(p *cluster.Partition, want int, loads []placement.Load) {
	held := make([]placement.Load, len(p.Replicas))
	for i, id := range p.Replicas {
		held[i].Node = id
		if n := m.view.Nodes[id]; n != nil {
			held[i].Zone = n.Zone
		}
	}
	added := placement.Add(loads, held, want-len(p.Replicas))
	p.Replicas = slices.Concat(p.Replicas, added)
	for k := range loads {
		if slices.Contains(added, loads[k].Node) {
			loads[k].Replicas++
		}
	}
}

// lessens takes replicas away until there are as many as the topic asks for. A move
// under way is over with that; those that were to go by it go first, then those that
// cannot be of use now, then the last ones. The leader stays. It reports whether enough
// of the ISR remains.
func (b *batch) lessens(t *cluster.Topic, p *cluster.Partition) bool {
	over := len(p.Replicas) - t.Settings.Replicas
	if over <= 0 {
		return true
	}
	worth := func(n ident.NodeID) int {
		switch {
		case slices.Contains(p.Removing, n):
			return 0
		case b.m.gone(n):
			return 1
		case !slices.Contains(p.ISR, n):
			return 2
		}
		return 3
	}
	goes := without(p.Replicas, p.Leader)
	slices.Reverse(goes)
	slices.SortStableFunc(goes, func(x, y ident.NodeID) int { return cmp.Compare(worth(x), worth(y)) })
	if !b.shrinks(t, p, p.Replicas, goes[:min(over, len(goes))]) {
		return false
	}
	p.Adding, p.Removing = nil, nil
	return true
}

package state

import (
	"slices"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// registerLone applies a registration of format 1 as the program that wrote it
// did: the node counts at once and leads on what it led, in new leader epochs. Such
// logs come from clusters of one node. Activated stays 0: that node never noted a
// broker epoch, so its next registration, of format 2, has none to show.
func (m *Machine) registerLone(n cluster.Node) cluster.Answer {
	if r := m.checkNode(&n); r != nil {
		return cluster.Answer{Refusal: r}
	}
	known := m.view.Nodes[n.ID]
	foreign := known != nil && known.Storage != n.Storage
	if foreign {
		if r := m.checkLost(known, &n); r != nil {
			return cluster.Answer{Refusal: r}
		}
	}
	m.begin(&n, 0)
	n.State = cluster.Alive
	m.putNode(&n)

	b := m.begins()
	b.each(func(p *cluster.Partition) bool { return concerns(p, n.ID) }, func(t *cluster.Topic, p *cluster.Partition) {
		if foreign {
			p.ISR = without(p.ISR, n.ID)
			if p.Leader == n.ID {
				b.leads(p, p.ISR[0]) // checkLost made sure of one
			}
			return
		}
		if p.Leader == n.ID || len(p.ISR) == 1 && p.ISR[0] == n.ID {
			b.leads(p, n.ID)
		}
	})
	b.done()
	return cluster.Answer{Epoch: n.BrokerEpoch}
}

func concerns(p *cluster.Partition, n ident.NodeID) bool {
	return p.Leader == n || slices.Contains(p.ISR, n) || slices.Contains(p.ELR, n)
}

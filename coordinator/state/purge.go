package state

import "tidewire/internal/cluster"

// purge moves the beginnings of partitions up. Whoever leads one from now on does so by
// a state that says where it begins, so nothing that was purged is served again.
func (m *Machine) purge(c *cluster.Purge) cluster.Answer {
	if r := tooMany("partitions of a purge", len(c.Of), cluster.MaxParts); r != nil {
		return cluster.Answer{Refusal: r}
	}
	b := m.begins()
	a := cluster.Answer{Taken: make([]bool, len(c.Of))}
	for i, part := range c.Of {
		_, p := b.find(part.Partition)
		if p == nil || p.LeaderEpoch != part.Epoch || p.Unclamped != 0 || part.Before < 0 || part.Before > maxOffset {
			continue
		}
		a.Taken[i] = true
		b.edit(part.Partition, func(_ *cluster.Topic, p *cluster.Partition) { p.Purged = max(p.Purged, part.Before) })
	}
	b.done()
	return a
}

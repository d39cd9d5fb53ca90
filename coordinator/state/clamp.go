package state

import (
	"slices"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// clamp sets the groups of partitions back to where these ended when somebody led who
// may lack what was committed (rule C4). A purge counts no further either: what comes
// under those offsets are other records.
func (m *Machine) clamp(c *cluster.Clamp) cluster.Answer {
	if r := tooMany("partitions of a clamp", len(c.Of), cluster.MaxParts); r != nil {
		return cluster.Answer{Refusal: r}
	}
	if !m.serves(c.Leader) {
		return cluster.Answer{Refusal: fenced(c.Leader)}
	}
	b := m.begins()
	a := cluster.Answer{Taken: make([]bool, len(c.Of))}
	of := map[ident.TopicID][]cluster.Position{}
	for i, part := range c.Of {
		_, p := b.find(part.Partition)
		if p == nil || p.Unclamped == 0 || p.Leader != c.Leader.Node || p.LeaderEpoch != part.Epoch || part.End < 0 || part.End > maxOffset {
			continue
		}
		b.edit(part.Partition, func(_ *cluster.Topic, p *cluster.Partition) {
			p.Unclamped, p.Purged = 0, min(p.Purged, part.End)
		})
		of[part.Partition.Topic] = append(of[part.Partition.Topic], cluster.Position{Partition: part.Partition.Index, Offset: part.End})
		a.Taken[i] = true
	}
	b.done()
	var changed []*cluster.Group
	for _, part := range c.Of { // in the order in which they were named, each topic once
		topic := part.Partition.Topic
		for g := range m.view.Groups[topic].All() {
			if len(of[topic]) == 0 {
				break
			}
			if now := m.setBack(m.groups[g.ID], of[topic], &a); now != nil {
				changed = append(changed, now)
			}
		}
		delete(of, topic)
	}
	m.showGroups(changed...)
	return a
}

// setBack clamps one group; nil: there is nothing to it. Where the group has members, some
// of what they hold may be of records that are no more, whatever it has counted.
func (m *Machine) setBack(g *group, ends []cluster.Position, a *cluster.Answer) *cluster.Group {
	touched := len(g.shown.Members) > 0
	for _, end := range ends {
		was := g.find(end.Partition)
		if was == nil {
			continue
		}
		now, cut := clamped(*was, end.Offset)
		if !cut {
			continue
		}
		if len(a.Clamped) < cluster.MaxClamped && was.Floor > now.Floor {
			ref := ident.Partition{Topic: g.shown.Topic, Index: end.Partition}
			a.Clamped = append(a.Clamped, cluster.Clamped{Partition: ref, Group: g.shown.Name, From: was.Floor, To: now.Floor})
		}
		m.ownProgress(g)
		m.weigh(g, g.find(end.Partition), now)
		touched = true
	}
	if !touched {
		return nil
	}
	return m.reset(g)
}

// clamped is a progress without what it says of an offset and above. Of a letter that was
// to be written the record is gone, and another may come under its offset: the letter is
// not carried out, and its number stays used up.
func clamped(p cluster.Progress, end ident.Offset) (now cluster.Progress, cut bool) {
	now = p
	now.Start, now.Floor = min(p.Start, end), min(p.Floor, end)
	now.Done, now.Dead, now.Skipped, now.Expired = below(p.Done, end), below(p.Dead, end), below(p.Skipped, end), below(p.Expired, end)
	now.Counts = keep(p.Counts, func(c cluster.Count) bool { return c.Offset < end })
	now.Intents = keep(p.Intents, func(i cluster.Intent) bool { return i.Offset < end })
	lost := func(was, now []cluster.Span) bool { return !slices.Equal(was, now) }
	cut = now.Floor < p.Floor || lost(p.Done, now.Done) || lost(p.Dead, now.Dead) || lost(p.Skipped, now.Skipped) || lost(p.Expired, now.Expired) ||
		len(now.Counts) < len(p.Counts) || len(now.Intents) < len(p.Intents)
	return now, cut
}

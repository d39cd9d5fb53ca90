package state

import (
	"bytes"
	"slices"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// commit keeps what members have done. Its parts stand apart: one that rests on what is
// over is left out, and harms no other.
//
// It is not among the answers that are remembered. Whoever says it twice finds it kept:
// the union of what is done with itself is the same, and every other word of it counts
// once by itself.
func (m *Machine) commit(c *cluster.Commit) cluster.Answer {
	if !m.serves(c.Leader) {
		return cluster.Answer{Refusal: fenced(c.Leader)}
	}
	taken := make([]bool, len(c.Of))
	for i := range c.Of {
		taken[i] = m.commitOf(c.Leader.Node, &c.Of[i])
	}
	return cluster.Answer{Taken: taken}
}

func (m *Machine) commitOf(leader ident.NodeID, c *cluster.CommitOf) bool {
	g := m.groups[c.Group]
	if g == nil || g.shown.Reset != c.Reset || !fits(c) {
		return false
	}
	p, ok := m.view.ByID[g.shown.Topic].Partition(c.Partition)
	if !ok || p.Leader != leader || p.LeaderEpoch != c.Leader {
		return false
	}
	was := g.find(c.Partition)
	if was == nil {
		return false
	}
	if !mayAcknowledge(g.shown, c) {
		return known(was, c)
	}
	now, ok := merge(*was, c)
	if !ok {
		return false
	}
	m.ownProgress(g)
	m.weigh(g, g.find(c.Partition), now)
	return true
}

// known says that a part says nothing new, whoever it speaks for: it may be one that was
// taken, came again, and was overtaken by the end of its member. Its records are done.
func known(p *cluster.Progress, c *cluster.CommitOf) bool {
	if len(c.Done) == 0 || c.Start > 0 || len(c.Counts)+len(c.Intents)+len(c.Published) > 0 {
		return false
	}
	return len(less(from(union(c.Done), p.Floor), union(p.Done, p.Dead, dying(p.Intents)))) == 0
}

// mayAcknowledge says whether the epochs of a part are those of whom it speaks for. A part
// that speaks for nobody is the leader's own word.
func mayAcknowledge(g *cluster.Group, c *cluster.CommitOf) bool {
	if c.Assignment != 0 {
		if o := g.Owner(c.Partition); o == nil || o.Member == "" || o.Epoch != c.Assignment {
			return false
		}
	}
	return c.Member == "" && c.Epoch == 0 || lives(g, &cluster.MemberLife{Member: c.Member, Epoch: c.Epoch})
}

// Dying are groups with intents on a partition, by id, at most so many of those beyond one.
// Who leads the partition asks once, when it comes to lead.
func (m *Machine) Dying(of ident.Partition, beyond ident.GroupID, most int) (all []cluster.GroupProgress) {
	for g := range m.view.Groups[of.Topic].All() {
		if bytes.Compare(g.ID[:], beyond[:]) <= 0 {
			continue
		}
		if p := m.groups[g.ID].find(of.Index); p != nil && len(p.Intents) > 0 {
			all = append(all, cluster.GroupProgress{Group: g.ID, Reset: g.Reset})
		}
	}
	slices.SortFunc(all, func(a, b cluster.GroupProgress) int { return bytes.Compare(a.Group[:], b.Group[:]) })
	return all[:min(len(all), most)]
}

// Progress tells how far groups have come on a partition. Nothing of it ever changes.
func (m *Machine) Progress(of ident.Partition, groups []ident.GroupID) []cluster.GroupProgress {
	var all []cluster.GroupProgress
	for _, id := range groups {
		g := m.groups[id]
		if g == nil || g.shown.Topic != of.Topic {
			continue
		}
		if p := g.find(of.Index); p != nil {
			all = append(all, cluster.GroupProgress{Group: id, Reset: g.shown.Reset, Progress: *p})
		}
	}
	return all
}

package balance

import (
	"slices"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// hands looks at who leads each partition, and collects who should.
func (v *view) hands() {
	led := map[ident.NodeID]int{} // by nodes that take over in this plan, on top of what they lead
	for _, t := range v.s.Topics {
		for k := range t.Partitions {
			led[t.Partitions[k].Leader]++
		}
	}
	for _, t := range v.topics() {
		for k := range t.Partitions {
			p := &t.Partitions[k]
			v.hand(t, p, led)
		}
	}
}

func (v *view) hand(t *cluster.Topic, p *cluster.Partition, led map[ident.NodeID]int) {
	ref := t.Ref(p.Index)
	short := len(p.ISR) < t.Settings.MinInsync
	none := p.Leader == (ident.NodeID{})
	leaves := v.leaderDrains(p) || v.isFull(p.Leader)
	if !none && !short && p.Leader == p.Replicas[0] && !leaves {
		if known := v.partitions[ref]; known != nil { // it is well
			v.of(ref, p)
			if v.now.Sub(known.since) >= longest {
				delete(v.partitions, ref)
			} else {
				known.short = time.Time{}
			}
		}
		return
	}
	known := v.of(ref, p)
	elect := func(into *[]cluster.ElectOf, id ident.NodeID, takeover bool) {
		led[p.Leader]--
		led[id]++
		*into = append(*into, cluster.ElectOf{Partition: ref, Version: p.Version, Leader: id, Takeover: takeover})
	}
	if none || leaves {
		id, ok := best(p.ISR, v.takes, led)
		if !ok && (none || v.leaderDrains(p)) { // who leads and is full may as well go on
			id, ok = best(p.ISR, v.stays, led)
		}
		if ok {
			if v.may(known) {
				elect(&v.urgent, id, false)
			}
			return
		}
	}
	if id, ok := v.successor(p, short || none); ok {
		if known.epoch != p.LeaderEpoch || known.short.IsZero() {
			known.epoch, known.short = p.LeaderEpoch, v.now
		}
		due := known.short.Add(min(v.cfg.takeoverAfter()<<min(known.taken, 10), longest))
		if v.now.Before(due) {
			v.wakes(due)
		} else if v.may(known) {
			known.taken++
			known.short = time.Time{}
			elect(&v.takeovers, id, true)
		}
		return
	}
	known.short = time.Time{}
	if v.returns(p, known) && len(v.back) < v.cfg.Elections && v.may(known) {
		elect(&v.back, p.Replicas[0], false)
	}
}

func (v *view) leaderDrains(p *cluster.Partition) bool {
	n := v.s.Nodes[p.Leader]
	return n != nil && n.State == cluster.DrainingState
}

// successor is an electable follower that answers, where its partition cannot commit:
// if its leader reached it, it would be in sync again. It is the one whose turn it is, so
// that one who reaches nobody either does not come again before the others.
func (v *view) successor(p *cluster.Partition, stuck bool) (ident.NodeID, bool) {
	if !stuck {
		return ident.NodeID{}, false
	}
	turns := slices.Index(p.Replicas, p.Leader) + 1
	for _, can := range []func(ident.NodeID) bool{v.stays, v.up} {
		for _, id := range slices.Concat(p.Replicas[turns:], p.Replicas[:turns]) {
			if slices.Contains(p.ELR, id) && can(id) {
				return id, true
			}
		}
	}
	return ident.NodeID{}, false
}

// returns says that the lead can go back to the first choice: it has served for a
// while, and the partition has been well for as long, with everybody in sync who is up. A
// leader that took over from one that it cannot reach has said so by then.
func (v *view) returns(p *cluster.Partition, known *partition) bool {
	first := p.Replicas[0]
	if p.Leader == (ident.NodeID{}) || p.Leader == first || slices.Contains(p.Removing, first) ||
		!slices.Contains(p.ISR, first) || v.isFull(first) || !v.settled(first) || v.now.Sub(known.since) < v.cfg.Settled {
		return false
	}
	return !slices.ContainsFunc(p.Replicas, func(id ident.NodeID) bool {
		return v.up(id) && !slices.Contains(p.ISR, id) && !slices.Contains(p.Adding, id)
	})
}

// best is who leads the fewest partitions of those that can.
func best(of []ident.NodeID, can func(ident.NodeID) bool, led map[ident.NodeID]int) (best ident.NodeID, ok bool) {
	for _, id := range of {
		if can(id) && (!ok || led[id] < led[best]) {
			best, ok = id, true
		}
	}
	return best, ok
}

// elections gives what was collected, the urgent ones first.
func (v *view) elections() (changes []cluster.Change) {
	for part := range slices.Chunk(slices.Concat(v.urgent, v.takeovers, v.back), cluster.MaxParts) {
		changes = append(changes, cluster.Change{Elect: &cluster.Elect{Of: part}})
	}
	return changes
}

package balance

import (
	"slices"

	"tidewire/coordinator/placement"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// moves plans moves of replicas, as many as there is room for beside those under
// way, and gives up those whose newcomer is gone. While nothing moves it evens out who is
// first choice to lead, which moves no data.
func (v *view) moves() []cluster.Change {
	task := placement.Task{
		Zone: func(id ident.NodeID) string {
			if n := v.s.Nodes[id]; n != nil {
				return n.Zone
			}
			return ""
		},
		Leaves: v.gone,
	}
	for id, n := range v.s.Nodes {
		if v.settled(id) {
			task.Open = append(task.Open, placement.Load{Node: id, Zone: n.Zone})
		}
	}
	move, underWay := &cluster.Move{}, 0
	for _, t := range v.topics() {
		for k := range t.Partitions {
			p := &t.Partitions[k]
			h := placement.Held{Partition: t.Ref(p.Index), Replicas: after(p), Want: t.Settings.Replicas}
			switch {
			case (len(p.Adding) > 0 || len(p.Removing) > 0) && v.givesUp(t, p):
				h.Alone = true
				if v.may(v.of(h.Partition, p)) {
					move.Of = append(move.Of, cluster.MoveOf{Partition: h.Partition, Version: p.Version})
				}
			case len(p.Adding) > 0 || len(p.Removing) > 0:
				underWay++
				h.Moving, h.Going = true, p.Removing
			}
			if p.Leader == (ident.NodeID{}) {
				h.Alone = true // nobody is there to copy from
			}
			task.Held = append(task.Held, h)
		}
	}
	steps := placement.Moves(task, max(0, v.cfg.Moves-underWay))
	if len(steps) == 0 && underWay == 0 {
		steps = placement.Firsts(task, v.cfg.Elections)
	}
	for _, step := range steps {
		p, _ := v.s.ByID[step.Partition.Topic].Partition(step.Partition.Index)
		if !v.may(v.of(step.Partition, p)) {
			continue
		}
		move.Of = append(move.Of, cluster.MoveOf{
			Partition: step.Partition, Version: p.Version, Add: step.Add, Remove: step.Remove, First: step.First,
		})
	}
	if len(move.Of) == 0 {
		return nil
	}
	var changes []cluster.Change
	for part := range slices.Chunk(move.Of, cluster.MaxParts) {
		changes = append(changes, cluster.Change{Move: &cluster.Move{Of: part}})
	}
	return changes
}

// givesUp says that a move is to be as if it had not begun: somebody who came is lost.
// Where too few would be in sync without those who came, it goes on with others.
func (v *view) givesUp(t *cluster.Topic, p *cluster.Partition) bool {
	stay := 0
	for _, id := range p.ISR {
		if !slices.Contains(p.Adding, id) {
			stay++
		}
	}
	return slices.ContainsFunc(p.Adding, v.lost) && stay >= max(1, t.Settings.MinInsync)
}

// lost says of a node that replicas were moving to that it has died or drains: they go
// elsewhere. One that comes back soon has lost nothing by it.
func (v *view) lost(id ident.NodeID) bool {
	n := v.s.Nodes[id]
	switch {
	case n == nil:
		return true
	case n.Over():
		return v.now.Sub(v.nodes[id].since) >= longest || v.gone(id)
	}
	return v.gone(id)
}

// after is who holds a partition once its move is done.
func after(p *cluster.Partition) []ident.NodeID {
	replicas := slices.DeleteFunc(slices.Clone(p.Replicas), func(id ident.NodeID) bool { return slices.Contains(p.Adding, id) })
	for i, id := range p.Removing {
		at := slices.Index(replicas, id)
		switch {
		case at < 0:
		case i < len(p.Adding):
			replicas[at] = p.Adding[i]
		default:
			replicas = slices.Delete(replicas, at, at+1)
		}
	}
	return append(replicas, p.Adding[min(len(p.Adding), len(p.Removing)):]...)
}

package placement

import (
	"bytes"
	"cmp"
	"slices"

	"tidewire/internal/ident"
)

// Held is a partition as it is, or, while it moves, as it will be.
type Held struct {
	Partition ident.Partition
	Replicas  []ident.NodeID // the first one is to lead
	Want      int            // replicas
	Moving    bool           // it counts, and gets no more than what it lacks
	Going     []ident.NodeID // while it moves: those who hold it yet and would go
	Alone     bool           // it counts, and is left alone
}

// Step changes one partition: replicas that come and go, or another first choice to lead.
type Step struct {
	Partition ident.Partition
	Add       []ident.NodeID
	Remove    []ident.NodeID
	First     ident.NodeID
}

// Task is what to plan for.
type Task struct {
	Open []Load // nodes that take replicas; their figures are counted anew
	// Zone of any node, Open or not.
	Zone func(ident.NodeID) string
	// Leaves says of a node that is not Open whether it is gone for good: its
	// replicas are to be held by others.
	Leaves func(ident.NodeID) bool
	Held   []Held
}

// plan is a task under way: what it has decided counts as done.
type plan struct {
	Task
	loads map[ident.NodeID]*Load // of Open
	first map[ident.NodeID]int   // partitions that a node of Open is first choice for
	on    map[ident.NodeID][]*Held
	steps []Step
}

// Moves plans at most so many moves of replicas: first those that bring back what is
// missing, then those that put a partition's replicas into different zones, then those
// that even out the nodes. A partition moves once in a plan. What partitions lack that
// move already comes on top: until they have it, their moves may not end.
func Moves(t Task, most int) []Step {
	p := newPlan(t)
	for k := range p.Held {
		if p.Held[k].Moving {
			p.mends(&p.Held[k])
		}
	}
	most += len(p.steps)
	for k := range p.Held {
		if len(p.steps) < most {
			p.mends(&p.Held[k])
		}
	}
	for k := range p.Held {
		if len(p.steps) < most {
			p.spreads(&p.Held[k])
		}
	}
	for len(p.steps) < most && p.evens() {
	}
	return p.steps
}

// Firsts plans at most so many changes of who is first choice to lead, so that nodes are
// that equally often. Such a change moves no data.
func Firsts(t Task, most int) []Step {
	p := newPlan(t)
	for len(p.steps) < most && p.turns() {
	}
	return p.steps
}

func newPlan(t Task) *plan {
	p := &plan{Task: t, loads: map[ident.NodeID]*Load{}, first: map[ident.NodeID]int{}, on: map[ident.NodeID][]*Held{}}
	p.Open = slices.Clone(t.Open)
	slices.SortFunc(p.Open, func(a, b Load) int { return bytes.Compare(a.Node[:], b.Node[:]) })
	for k := range p.Open {
		p.Open[k].Replicas, p.Open[k].Leaders = 0, 0
		p.loads[p.Open[k].Node] = &p.Open[k]
	}
	p.Held = slices.Clone(t.Held)
	slices.SortFunc(p.Held, func(a, b Held) int {
		return cmp.Or(bytes.Compare(a.Partition.Topic[:], b.Partition.Topic[:]), cmp.Compare(a.Partition.Index, b.Partition.Index))
	})
	for k := range p.Held {
		h := &p.Held[k]
		for i, n := range h.Replicas {
			if l := p.loads[n]; l != nil {
				l.Replicas++
				p.on[n] = append(p.on[n], h)
				if i == 0 {
					p.first[n]++
				}
			}
		}
	}
	return p
}

// mends finds a node in the place of one that is gone, and for replicas that were
// never there. Who was to go has it all already, and stays instead.
func (p *plan) mends(h *Held) {
	if h.Alone {
		return
	}
	var stay []Load
	var gone []ident.NodeID
	for _, n := range h.Replicas {
		if p.Leaves(n) {
			gone = append(gone, n)
		} else {
			stay = append(stay, Load{Node: n, Zone: p.Zone(n)})
		}
	}
	var come []ident.NodeID
	for _, n := range h.Going {
		if p.loads[n] != nil && len(stay) < h.Want {
			come, stay = append(come, n), append(stay, Load{Node: n, Zone: p.Zone(n)})
		}
	}
	come = append(come, Add(p.Open, stay, max(0, h.Want-len(stay)))...)
	gone = gone[:min(len(gone), max(0, len(h.Replicas)+len(come)-h.Want))] // none goes without another in its place
	if len(come) == 0 {
		return
	}
	p.step(h, come, gone)
}

// spreads moves a replica from a zone that has several of the partition to one that
// has none.
func (p *plan) spreads(h *Held) {
	if h.Moving || h.Alone {
		return
	}
	from := slices.IndexFunc(h.Replicas, func(n ident.NodeID) bool { return p.loads[n] != nil && p.inZone(h, p.Zone(n)) > 1 })
	if from < 0 {
		return
	}
	for i, n := range h.Replicas { // of those that share a zone, the one on the fullest node
		if l := p.loads[n]; l != nil && p.inZone(h, l.Zone) > 1 && l.Replicas > p.loads[h.Replicas[from]].Replicas {
			from = i
		}
	}
	var to *Load
	for k := range p.Open {
		if l := &p.Open[k]; p.inZone(h, l.Zone) == 0 && (to == nil || l.Replicas < to.Replicas) {
			to = l
		}
	}
	if to != nil {
		p.step(h, []ident.NodeID{to.Node}, []ident.NodeID{h.Replicas[from]})
	}
}

// mostTargets bounds how many of the emptiest nodes are tried for each full one.
const mostTargets = 16

// evens moves one replica from a full node to one that holds at least two fewer,
// without putting more of the partition into one zone.
func (p *plan) evens() bool {
	nodes := make([]*Load, 0, len(p.Open))
	for k := range p.Open {
		nodes = append(nodes, &p.Open[k])
	}
	slices.SortStableFunc(nodes, func(a, b *Load) int { return cmp.Compare(a.Replicas, b.Replicas) })
	for _, from := range slices.Backward(nodes) {
		for _, to := range nodes[:min(mostTargets, len(nodes))] {
			if from.Replicas-to.Replicas < 2 {
				break
			}
			if h := p.movable(from, to); h != nil {
				p.step(h, []ident.NodeID{to.Node}, []ident.NodeID{from.Node})
				return true
			}
		}
	}
	return false
}

// movable finds a partition that can go from one node to another, rather one whose
// move also evens who is first choice to lead.
func (p *plan) movable(from, to *Load) *Held {
	wantFirst := p.first[from.Node]-p.first[to.Node] >= 2
	var other *Held
	for _, h := range p.on[from.Node] {
		if h.Moving || h.Alone || !slices.Contains(h.Replicas, from.Node) || slices.Contains(h.Replicas, to.Node) {
			continue
		}
		if from.Zone != to.Zone && p.inZone(h, to.Zone) >= p.inZone(h, from.Zone) {
			continue
		}
		if (h.Replicas[0] == from.Node) == wantFirst {
			return h
		}
		if other == nil {
			other = h
		}
	}
	return other
}

// turns makes another replica the first choice of one partition.
func (p *plan) turns() bool {
	nodes := slices.Clone(p.Open)
	slices.SortStableFunc(nodes, func(a, b Load) int { return cmp.Compare(p.first[a.Node], p.first[b.Node]) })
	for _, from := range slices.Backward(nodes) {
		var best *Held
		var to ident.NodeID
		for _, h := range p.on[from.Node] {
			if h.Moving || h.Alone || h.Replicas[0] != from.Node {
				continue
			}
			for _, n := range h.Replicas[1:] {
				if p.loads[n] != nil && p.first[from.Node]-p.first[n] >= 2 && (best == nil || p.first[n] < p.first[to]) {
					best, to = h, n
				}
			}
		}
		if best != nil {
			p.first[from.Node]--
			p.first[to]++
			best.Alone = true
			p.steps = append(p.steps, Step{Partition: best.Partition, First: to})
			return true
		}
	}
	return false
}

func (p *plan) inZone(h *Held, zone string) int {
	count := 0
	for _, n := range h.Replicas {
		if p.Zone(n) == zone {
			count++
		}
	}
	return count
}

// step decides a move and counts it as done: those that come take the places of
// those that go, then the end.
func (p *plan) step(h *Held, come, gone []ident.NodeID) {
	p.steps = append(p.steps, Step{Partition: h.Partition, Add: come, Remove: gone})
	after := slices.Clone(h.Replicas)
	for i, n := range gone {
		if l := p.loads[n]; l != nil {
			l.Replicas--
			if h.Replicas[0] == n {
				p.first[n]--
			}
		}
		if i < len(come) {
			after[slices.Index(after, n)] = come[i]
		}
	}
	for i, n := range come {
		if i >= len(gone) {
			after = append(after, n)
		}
		p.loads[n].Replicas++
		if after[0] == n {
			p.first[n]++
		}
	}
	h.Replicas, h.Alone = after, true
}

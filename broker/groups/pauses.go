package groups

import (
	"cmp"
	"slices"
	"sync"

	"tidewire/internal/ident"
)

// maxPauses is how many groups that pause are named.
const maxPauses = 256

// Pause is a group that is given nothing new on a partition, because as many records as
// there may be are not done (rule C8).
type Pause struct {
	Partition ident.Partition
	Group     string
}

// pauses are the units that pause, so that whoever asks for them looks at no others.
type pauses struct {
	mu sync.Mutex
	of map[*unit]bool
}

// set notes that a unit pauses, or goes on.
func (p *pauses) set(u *unit, paused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !paused {
		delete(p.of, u)
		return
	}
	if p.of == nil {
		p.of = map[*unit]bool{}
	}
	p.of[u] = true
}

// Paused are the groups that pause on partitions that this node leads, the first maxPauses
// of them.
func (g *Groups) Paused() []Pause {
	g.paused.mu.Lock()
	defer g.paused.mu.Unlock()
	if len(g.paused.of) == 0 {
		return nil
	}
	all := make([]Pause, 0, len(g.paused.of))
	for u := range g.paused.of {
		all = append(all, Pause{u.post.ref, u.name})
	}
	slices.SortFunc(all, func(a, b Pause) int {
		return cmp.Or(slices.Compare(a.Partition.Topic[:], b.Partition.Topic[:]), cmp.Compare(a.Partition.Index, b.Partition.Index), cmp.Compare(a.Group, b.Group))
	})
	return all[:min(len(all), maxPauses)]
}

// pausesLocked keeps in mind whether the unit pauses.
func (u *unit) pausesLocked(paused bool) {
	if paused != u.pauses {
		u.pauses = paused
		u.post.g.paused.set(u, paused)
	}
}

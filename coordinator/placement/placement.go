package placement

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"tidewire/internal/ident"
)

// Load is what a node carries already.
type Load struct {
	Node     ident.NodeID
	Zone     string
	Replicas int // of any partition
	Leaders  int // partitions led
}

// Spread places n new partitions of the given number of replicas over the
// nodes. The first node of each answer leads. Replicas go to zones that have
// none of the partition yet, and there to the nodes with the fewest replicas; among
// those chosen the one that leads the fewest partitions leads; ties go by node id.
// replicas must lie in 1..len(nodes).
func Spread(nodes []Load, n, replicas int) [][]ident.NodeID {
	if replicas < 1 || replicas > len(nodes) {
		panic(fmt.Sprintf("placement: %d replicas on %d nodes", replicas, len(nodes)))
	}
	nodes = slices.Clone(nodes)
	placed := make([][]ident.NodeID, n)
	for i := range placed {
		chosen := choose(nodes, nil, replicas)
		slices.SortFunc(chosen, byLeaders)
		ids := make([]ident.NodeID, replicas)
		for k, l := range chosen {
			ids[k] = l.Node
			at := slices.IndexFunc(nodes, func(o Load) bool { return o.Node == l.Node })
			nodes[at].Replicas++
			if k == 0 {
				nodes[at].Leaders++
			}
		}
		placed[i] = ids
	}
	return placed
}

// Add chooses n more nodes for a partition that is held by some already; of those
// only node and zone count. It gives fewer where there are not that many others.
func Add(nodes, held []Load, n int) []ident.NodeID {
	free := slices.DeleteFunc(slices.Clone(nodes), func(l Load) bool {
		return slices.ContainsFunc(held, func(h Load) bool { return h.Node == l.Node })
	})
	more := make([]ident.NodeID, 0, n)
	for _, l := range choose(free, held, min(n, len(free))) {
		more = append(more, l.Node)
	}
	return more
}

// choose takes n of the nodes to stand beside those that hold the partition.
func choose(nodes, held []Load, n int) []Load {
	inZone := map[string]int{}
	for _, h := range held {
		inZone[h.Zone]++
	}
	free := slices.Clone(nodes)
	slices.SortFunc(free, byReplicas)
	chosen := make([]Load, 0, n)
	for len(chosen) < n {
		best := 0
		for i := range free {
			if inZone[free[i].Zone] < inZone[free[best].Zone] {
				best = i
			}
		}
		inZone[free[best].Zone]++
		chosen = append(chosen, free[best])
		free = slices.Delete(free, best, best+1)
	}
	return chosen
}

func byReplicas(a, b Load) int {
	return cmp.Or(cmp.Compare(a.Replicas, b.Replicas), bytes.Compare(a.Node[:], b.Node[:]))
}

func byLeaders(a, b Load) int {
	return cmp.Or(cmp.Compare(a.Leaders, b.Leaders), bytes.Compare(a.Node[:], b.Node[:]))
}

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
	Replicas int // of any partition
	Leaders  int // partitions led
}

// Spread places n new partitions of the given number of replicas over the
// nodes. The first node of each answer leads. The nodes with the fewest
// replicas come first, among those the one that leads the fewest partitions
// leads; ties go by node id. replicas must lie in 1..len(nodes).
func Spread(nodes []Load, n, replicas int) [][]ident.NodeID {
	if replicas < 1 || replicas > len(nodes) {
		panic(fmt.Sprintf("placement: %d replicas on %d nodes", replicas, len(nodes)))
	}
	nodes = slices.Clone(nodes)
	placed := make([][]ident.NodeID, n)
	for i := range placed {
		slices.SortFunc(nodes, byReplicas)
		chosen := nodes[:replicas]
		slices.SortFunc(chosen, byLeaders)
		ids := make([]ident.NodeID, replicas)
		for k := range chosen {
			chosen[k].Replicas++
			ids[k] = chosen[k].Node
		}
		chosen[0].Leaders++
		placed[i] = ids
	}
	return placed
}

// Add chooses n more nodes for a partition that is held by some already.
// It gives fewer where there are not that many others.
func Add(nodes []Load, held []ident.NodeID, n int) []ident.NodeID {
	free := slices.DeleteFunc(slices.Clone(nodes), func(l Load) bool { return slices.Contains(held, l.Node) })
	slices.SortFunc(free, byReplicas)
	more := make([]ident.NodeID, 0, n)
	for _, l := range free[:min(n, len(free))] {
		more = append(more, l.Node)
	}
	return more
}

func byReplicas(a, b Load) int {
	return cmp.Or(cmp.Compare(a.Replicas, b.Replicas), bytes.Compare(a.Node[:], b.Node[:]))
}

func byLeaders(a, b Load) int {
	return cmp.Or(cmp.Compare(a.Leaders, b.Leaders), bytes.Compare(a.Node[:], b.Node[:]))
}

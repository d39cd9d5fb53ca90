package placement_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"tidewire/coordinator/placement"
	"tidewire/internal/ident"
)

func nodes(n int) []placement.Load {
	loads := make([]placement.Load, n)
	for i := range loads {
		loads[i].Node = ident.NodeID{byte(i + 1)}
	}
	return loads
}

func TestReplicasAndLeadersAreEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(t, "nodes")
		replicas := rapid.IntRange(1, n).Draw(t, "replicas")
		partitions := rapid.IntRange(1, 256).Draw(t, "partitions")
		held, led := map[ident.NodeID]int{}, map[ident.NodeID]int{}
		for _, ids := range placement.Spread(nodes(n), partitions, replicas) {
			if len(ids) != replicas {
				t.Fatalf("%d replicas, wanted %d", len(ids), replicas)
			}
			led[ids[0]]++
			for i, id := range ids {
				if slices.Contains(ids[:i], id) {
					t.Fatalf("two replicas on one node: %v", ids)
				}
				held[id]++
			}
		}
		low, high := partitions*replicas, 0
		for _, l := range nodes(n) {
			low, high = min(low, held[l.Node]), max(high, held[l.Node])
		}
		if high-low > 1 {
			t.Fatalf("nodes hold %d to %d replicas", low, high)
		}
		if replicas == n { // every node may lead every partition
			for _, l := range nodes(n) {
				if got, fair := led[l.Node], partitions/n; got < fair || got > fair+1 {
					t.Fatalf("node %v leads %d of %d", l.Node, got, partitions)
				}
			}
		}
	})
}

func TestTheOrderOfNodesDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		loads := nodes(rapid.IntRange(1, 7).Draw(t, "nodes"))
		for i := range loads {
			loads[i].Replicas = rapid.IntRange(0, 5).Draw(t, "replicas")
			loads[i].Leaders = rapid.IntRange(0, loads[i].Replicas).Draw(t, "leaders")
		}
		shuffled := rapid.Permutation(loads).Draw(t, "order")
		before := slices.Clone(shuffled)
		a := placement.Spread(loads, 12, len(loads)/2+1)
		b := placement.Spread(shuffled, 12, len(loads)/2+1)
		if !slices.EqualFunc(a, b, slices.Equal) {
			t.Fatalf("%v differs from %v", a, b)
		}
		if !slices.Equal(shuffled, before) {
			t.Fatal("the caller's loads were changed")
		}
	})
}

func TestTheLeastLoadedNodeIsTakenFirst(t *testing.T) {
	loads := nodes(3)
	loads[0].Replicas, loads[1].Replicas = 4, 1
	got := placement.Spread(loads, 1, 2)[0]
	if !slices.Equal(got, []ident.NodeID{{2}, {3}}) {
		t.Fatalf("placed on %v", got)
	}
	if got := placement.Add(loads, []placement.Load{{Node: got[0]}, {Node: got[1]}}, 5); !slices.Equal(got, []ident.NodeID{{1}}) {
		t.Fatalf("added %v", got)
	}
}

package placement_test

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"tidewire/coordinator/placement"
	"tidewire/internal/ident"
)

// world is a cluster to plan for: nodes in zones, some of them gone, and partitions.
type world struct {
	zones map[ident.NodeID]string
	gone  map[ident.NodeID]bool
	held  []placement.Held
}

func (w *world) task() placement.Task {
	t := placement.Task{
		Zone:   func(n ident.NodeID) string { return w.zones[n] },
		Leaves: func(n ident.NodeID) bool { return w.gone[n] },
		Held:   slices.Clone(w.held),
	}
	for n, zone := range w.zones { // in any order
		if !w.gone[n] {
			t.Open = append(t.Open, placement.Load{Node: n, Zone: zone})
		}
	}
	return t
}

// perform does what a plan says, and fails where it could not be done.
func (w *world) perform(t interface{ Fatalf(string, ...any) }, steps []placement.Step) {
	seen := map[ident.Partition]bool{}
	for _, s := range steps {
		i := slices.IndexFunc(w.held, func(h placement.Held) bool { return h.Partition == s.Partition })
		h := &w.held[i]
		if seen[s.Partition] || h.Moving {
			t.Fatalf("%v moves twice", s.Partition)
		}
		seen[s.Partition] = true
		after := slices.Clone(h.Replicas)
		if s.First != (ident.NodeID{}) {
			k := slices.Index(after, s.First)
			after[0], after[k] = after[k], after[0]
		}
		for k, n := range s.Remove {
			at := slices.Index(after, n)
			after[at] = s.Add[k] // none goes without another in its place
		}
		after = append(after, s.Add[len(s.Remove):]...)
		for k, n := range after {
			if slices.Contains(after[:k], n) || slices.Contains(s.Add, n) && w.gone[n] {
				t.Fatalf("%+v gives %v", s, after)
			}
		}
		if len(after) > h.Want || len(after) < len(h.Replicas) {
			t.Fatalf("%+v gives %d replicas of %d", s, len(after), h.Want)
		}
		h.Replicas = after
	}
}

func (w *world) settle(t interface{ Fatalf(string, ...any) }, most int) (moves int) {
	for range 10_000 {
		steps := placement.Moves(w.task(), most)
		if len(steps) > most {
			t.Fatalf("%d moves of at most %d", len(steps), most)
		}
		if len(steps) == 0 {
			return moves
		}
		moves += len(steps)
		w.perform(t, steps)
	}
	t.Fatalf("it never ends")
	return 0
}

func (w *world) counts() (replicas, first map[ident.NodeID]int) {
	replicas, first = map[ident.NodeID]int{}, map[ident.NodeID]int{}
	for n := range w.zones {
		if !w.gone[n] {
			replicas[n], first[n] = 0, 0
		}
	}
	for _, h := range w.held {
		for i, n := range h.Replicas {
			if !w.gone[n] {
				replicas[n]++
				if i == 0 {
					first[n]++
				}
			}
		}
	}
	return replicas, first
}

func spread(counts map[ident.NodeID]int) int {
	values := slices.Collect(maps.Values(counts))
	return slices.Max(values) - slices.Min(values)
}

func (w *world) zonesOf(ids []ident.NodeID) int {
	zones := map[string]bool{}
	for _, n := range ids {
		zones[w.zones[n]] = true
	}
	return len(zones)
}

func drawWorld(t *rapid.T, zones int) *world {
	w := &world{zones: map[ident.NodeID]string{}, gone: map[ident.NodeID]bool{}}
	n := rapid.IntRange(1, 8).Draw(t, "nodes")
	for i := range n {
		id := ident.NodeID{byte(i + 1)}
		w.zones[id] = string(rune('a' + rapid.IntRange(0, zones-1).Draw(t, "zone")))
		w.gone[id] = i > 0 && rapid.IntRange(0, 4).Draw(t, "gone") == 0
	}
	ids := slices.SortedFunc(maps.Keys(w.zones), func(a, b ident.NodeID) int { return int(a[0]) - int(b[0]) })
	for i := range rapid.IntRange(0, 60).Draw(t, "partitions") {
		h := placement.Held{Partition: ident.Partition{Topic: ident.TopicID{byte(i % 3)}, Index: ident.Index(i)}}
		h.Want = rapid.IntRange(1, min(3, n)).Draw(t, "want")
		h.Replicas = rapid.Permutation(ids).Draw(t, "replicas")[:rapid.IntRange(1, h.Want).Draw(t, "held")]
		w.held = append(w.held, h)
	}
	return w
}

func TestMovesConvergeAndStop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, rapid.IntRange(1, 3).Draw(t, "zones"))
		w.settle(t, rapid.IntRange(1, 5).Draw(t, "bound"))
		replicas, _ := w.counts()
		open := slices.Collect(maps.Keys(replicas))
		for _, h := range w.held {
			alive := slices.DeleteFunc(slices.Clone(h.Replicas), func(n ident.NodeID) bool { return w.gone[n] })
			if len(alive) < min(h.Want, len(open)) {
				t.Fatalf("%+v has %d live replicas of %d nodes", h, len(alive), len(open))
			}
			if len(alive) == len(h.Replicas) && w.zonesOf(h.Replicas) < min(len(h.Replicas), w.zonesOf(open)) {
				t.Fatalf("%+v lies in %d zones", h, w.zonesOf(h.Replicas))
			}
		}
		if w.zonesOf(open) == 1 && spread(replicas) > 1 {
			t.Fatalf("nodes hold %v", replicas)
		}
		before := slices.Clone(w.held)
		for range 1000 {
			steps := placement.Firsts(w.task(), 3)
			if len(steps) == 0 {
				break
			}
			w.perform(t, steps)
		}
		if steps := placement.Firsts(w.task(), 3); len(steps) > 0 {
			t.Fatal("the first choices never settle")
		}
		if steps := placement.Moves(w.task(), 3); len(steps) > 0 {
			t.Fatalf("a change of who leads moves data: %+v", steps)
		}
		_, first := w.counts()
		for k, h := range w.held {
			if len(h.Replicas) != len(before[k].Replicas) {
				t.Fatal("a change of who leads changed who holds")
			}
			for _, n := range h.Replicas {
				if lead := h.Replicas[0]; !w.gone[n] && !w.gone[lead] && first[lead]-first[n] > 1 {
					t.Fatalf("%v is first choice %d times, %v %d times, and either could be for %+v", lead, first[lead], n, first[n], h)
				}
			}
		}
	})
}

func TestTheOrderOfATaskDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, 2)
		a := placement.Moves(w.task(), 4)
		w.held = rapid.Permutation(w.held).Draw(t, "order")
		b := placement.Moves(w.task(), 4)
		if !slices.EqualFunc(a, b, func(x, y placement.Step) bool {
			return x.Partition == y.Partition && slices.Equal(x.Add, y.Add) && slices.Equal(x.Remove, y.Remove)
		}) {
			t.Fatalf("%+v differs from %+v", a, b)
		}
	})
}

// cluster places partitions on nodes as they are created.
func cluster(nodes, partitions, replicas int, zones ...string) *world {
	w := &world{zones: map[ident.NodeID]string{}, gone: map[ident.NodeID]bool{}}
	var loads []placement.Load
	for i := range nodes {
		l := placement.Load{Node: ident.NodeID{byte(i + 1)}}
		if len(zones) > 0 {
			l.Zone = zones[i%len(zones)]
		}
		w.zones[l.Node] = l.Zone
		loads = append(loads, l)
	}
	for i, ids := range placement.Spread(loads, partitions, replicas) {
		w.held = append(w.held, placement.Held{Partition: ident.Partition{Index: ident.Index(i)}, Replicas: ids, Want: replicas})
	}
	return w
}

func TestNewTopicsNeedNoMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 7).Draw(t, "nodes")
		w := cluster(n, rapid.IntRange(1, 64).Draw(t, "partitions"), rapid.IntRange(1, n).Draw(t, "replicas"))
		if steps := placement.Moves(w.task(), 9); len(steps) > 0 {
			t.Fatalf("%+v", steps)
		}
	})
}

func TestANewNodeGetsItsShareWithFewMoves(t *testing.T) {
	w := cluster(3, 24, 3)
	w.zones[ident.NodeID{4}] = ""
	moves := w.settle(t, 4)
	for range 24 {
		w.perform(t, placement.Firsts(w.task(), 4))
	}
	replicas, first := w.counts()
	if moves != 18 || spread(replicas) > 1 || spread(first) > 1 { // 72 replicas on 4 nodes are 18 each
		t.Fatalf("%d moves: %v, first choice %v", moves, replicas, first)
	}
}

func TestANodeThatIsGoneIsReplacedInItsZone(t *testing.T) {
	w := cluster(6, 12, 3, "x", "y", "z")
	w.gone[ident.NodeID{1}] = true // of zone x
	held := 0
	for _, h := range w.held {
		if slices.Contains(h.Replicas, ident.NodeID{1}) {
			held++
		}
	}
	if moves := w.settle(t, 4); moves != held {
		t.Fatalf("%d moves for %d replicas", moves, held)
	}
	for _, h := range w.held {
		if w.zonesOf(h.Replicas) != 3 {
			t.Fatalf("%+v lies in %d zones", h, w.zonesOf(h.Replicas))
		}
	}
}

func TestReplicasOfANewTopicLieInDifferentZones(t *testing.T) {
	w := cluster(7, 40, 3, "x", "x", "y", "z")
	for _, h := range w.held {
		if w.zonesOf(h.Replicas) != 3 {
			t.Fatalf("%+v lies in %d zones", h, w.zonesOf(h.Replicas))
		}
	}
	held := []placement.Load{{Node: ident.NodeID{1}, Zone: "x"}}
	open := []placement.Load{{Node: ident.NodeID{2}, Zone: "x"}, {Node: ident.NodeID{3}, Zone: "y", Replicas: 9}}
	if got := placement.Add(open, held, 1); got[0] != (ident.NodeID{3}) {
		t.Fatalf("the emptier node was taken, though it is in the same zone: %v", got)
	}
}

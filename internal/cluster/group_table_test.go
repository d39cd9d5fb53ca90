package cluster

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"tidewire/internal/ident"
)

// A table holds what a map would, whatever way it came to that, and none that was given
// out ever changes.
func TestATableIsAMapThatStaysAsItIs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table *GroupTable
		want := map[string]*Group{}
		var former []*GroupTable
		var then []map[string]*Group
		for i := range rapid.IntRange(1, 40).Draw(t, "steps") {
			former, then = append(former, table), append(then, maps.Clone(want))
			from := rapid.IntRange(0, 300).Draw(t, "from")
			many := rapid.SampledFrom([]int{1, 2, 60, 200}).Draw(t, "many")
			if rapid.IntRange(0, 2).Draw(t, "goes") == 0 {
				for k := range many {
					name := fmt.Sprint("g", from+k)
					table = table.Without(name)
					delete(want, name)
				}
				continue
			}
			var groups []*Group
			for k := range many {
				g := &Group{Name: fmt.Sprint("g", from+k), Modified: uint64(i + 1)}
				groups = append(groups, g)
				want[g.Name] = g
			}
			table = table.With(groups...)
		}
		same(t, table, want)
		for i := range former {
			same(t, former[i], then[i])
		}
		if table == nil {
			return
		}
		at := uint64(rapid.IntRange(0, 40).Draw(t, "since"))
		changed := slices.Collect(table.Since(at))
		for g := range table.All() {
			if (g.Modified > at) != slices.Contains(changed, g) {
				t.Fatalf("%s of %d since %d", g.Name, g.Modified, at)
			}
			if g.Modified > table.Modified() {
				t.Fatalf("%s of %d in a table of %d", g.Name, g.Modified, table.Modified())
			}
		}
		if other := (*GroupTable)(nil).With(slices.Collect(maps.Values(want))...); !reflect.DeepEqual(other, table) {
			t.Fatal("the same groups make two tables")
		}
	})
}

func same(t *rapid.T, table *GroupTable, want map[string]*Group) {
	if table.Len() != len(want) || len(slices.Collect(table.All())) != len(want) || (table == nil) != (len(want) == 0) {
		t.Fatalf("%d groups, want %d", table.Len(), len(want))
	}
	for name, g := range want {
		if table.Get(name) != g {
			t.Fatalf("%s is another", name)
		}
	}
	if table.Get("h1") != nil {
		t.Fatal("a group that is not there was found")
	}
}

// However many groups a topic has, a delta finds one that changed, and that none did,
// without a look at most of the others: here they are none that one could look at.
func TestADeltaDoesNotLookAtGroupsThatDidNotChange(t *testing.T) {
	var all []*Group
	for i := range 10_000 {
		all = append(all, &Group{Name: fmt.Sprint("group-", i), Modified: 1})
	}
	changed := *all[77]
	changed.Modified = 3
	table := (*GroupTable)(nil).With(all...).With(&changed)
	looked := 0
	for i := range table.shards {
		if table.shards[i].modified == 1 {
			clear(table.shards[i].groups)
		} else {
			looked += len(table.shards[i].groups)
		}
	}
	s := &Snapshot{Index: 3, Groups: map[ident.TopicID]*GroupTable{{7}: table}}
	if d := s.Since(Mark{Index: 2}); !slices.Equal(d.Groups, []*Group{&changed}) {
		t.Fatalf("%d groups", len(d.Groups))
	}
	table.shards = nil
	if d := s.Since(Mark{Index: 3}); len(d.Groups) != 0 {
		t.Fatalf("%d groups", len(d.Groups))
	}
	if looked > 4*groupsAShard {
		t.Fatalf("%d groups were looked at", looked)
	}
}

func BenchmarkGroupTable(b *testing.B) {
	for _, n := range []int{1, 10_000, 50_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var all []*Group
			for i := range n {
				all = append(all, &Group{Name: fmt.Sprint("group-", i), Modified: 1})
			}
			t := (*GroupTable)(nil).With(all...)
			i := 0
			for b.Loop() {
				t = t.With(all[i%n])
				i++
			}
		})
	}
}

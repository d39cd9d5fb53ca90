package state_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"tidewire/coordinator/state"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

func apply(t *rapid.T, m *state.Machine, index uint64, b []byte) string {
	a, err := m.Apply(index, b)
	if err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func encode(t interface{ Fatal(...any) }, m *state.Machine) []byte {
	var b bytes.Buffer
	if _, err := m.Capture().WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A snapshot and the commands after it give the same bytes and the same answers
// as all commands from the start; what was captured or published in between
// does not change by what follows.
func TestSnapshotAndTailEqualReplay(t *testing.T) {
	kinds := slices.Concat(clusterKinds(), groupKinds())
	rapid.Check(t, func(t *rapid.T) {
		begin := opening()
		if rapid.IntRange(0, 3).Draw(t, "empty") == 0 {
			begin = nil
		}
		total := len(begin) + rapid.IntRange(1, 60).Draw(t, "commands")
		cut := rapid.IntRange(0, total).Draw(t, "cut")
		replayed, restored := state.New(), state.New()
		var published *cluster.Snapshot
		var captured *state.Capture
		var publishedThen, capturedThen string
		for i := range total {
			if i == cut {
				captured, published = replayed.Capture(), replayed.Snapshot()
				var b bytes.Buffer
				if _, err := captured.WriteTo(&b); err != nil {
					t.Fatal(err)
				}
				capturedThen, publishedThen = b.String(), string(must(json.Marshal(published)))
				var err error
				if restored, err = state.Restore(b.Bytes()); err != nil {
					t.Fatal(err)
				}
			}
			var c *state.Command
			if i < len(begin) {
				c = begin[i]
			} else {
				c = drawCommand(t, replayed, byte(i+1), kinds)
			}
			b := mustEncode(t, c)
			index := uint64(i + 2)
			if i >= len(begin) {
				index = uint64(2*i + 3) // raft's own entries take indexes too
			}
			got := apply(t, replayed, index, b)
			if i < cut {
				apply(t, restored, index, b)
			} else if other := apply(t, restored, index, b); other != got {
				t.Fatalf("answers differ:\n%s\n%s", got, other)
			}
			wellFormed(t, replayed.Snapshot())
		}
		if a, b := encode(t, replayed), encode(t, restored); !bytes.Equal(a, b) {
			t.Fatalf("states differ:\n%s\n%s", a, b)
		}
		if captured == nil {
			return
		}
		var b bytes.Buffer
		if _, err := captured.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		if b.String() != capturedThen || string(must(json.Marshal(published))) != publishedThen {
			t.Fatal("later commands changed what was handed out")
		}
	})
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

func TestDeletedIDsAreRememberedWithinABound(t *testing.T) {
	m := state.New()
	index := uint64(0)
	do := func(c *state.Command) {
		t.Helper()
		index++
		c.Request = state.RequestID{byte(index >> 16), byte(index >> 8), byte(index), 1}
		b, err := state.Encode(c)
		if err != nil {
			t.Fatal(err)
		}
		if a, err := m.Apply(index, b); err != nil || a.Refusal != nil {
			t.Fatal(a.Refusal, err)
		}
	}
	do(&state.Command{Change: cluster.Change{Register: &cluster.Register{Node: cluster.Node{ID: ident.NodeID{1}, Name: "a", Roles: []string{"broker"}}}}})
	do(&state.Command{Change: cluster.Change{Activate: &cluster.Activate{Node: ident.NodeID{1}, Epoch: 1}}})
	const more = 3
	var first [more]uint64
	for i := range state.MaxDeleted + more {
		do(&state.Command{Change: cluster.Change{Create: &cluster.Create{ID: ident.TopicID{1, byte(i >> 8), byte(i)}, Spec: cluster.TopicSpec{Name: "x"}}}})
		do(&state.Command{Change: cluster.Change{Delete: &cluster.Delete{Name: "x"}}})
		if i < more {
			first[i] = index
		}
	}
	s := m.Snapshot()
	if len(s.Deleted) != state.MaxDeleted || s.DeletedFloor != first[more-1] {
		t.Fatalf("%d remembered, forgotten up to %d, want up to %d", len(s.Deleted), s.DeletedFloor, first[more-1])
	}
	if s.Deleted[ident.TopicID{1, 0, more}] == 0 || s.Deleted[ident.TopicID{1, 0, more - 1}] != 0 {
		t.Fatal("not the oldest were forgotten")
	}
	again, err := state.Restore(encode(t, m))
	if err != nil || !bytes.Equal(encode(t, again), encode(t, m)) {
		t.Fatal("a snapshot with forgotten ids does not come back the same", err)
	}
}

func TestTheClusterHasABound(t *testing.T) {
	m := state.New()
	index := uint64(0)
	do := func(c *state.Command) *cluster.Refusal {
		t.Helper()
		index++
		c.Request = state.RequestID{byte(index >> 16), byte(index >> 8), byte(index), 1}
		b, err := state.Encode(c)
		if err != nil {
			t.Fatal(err)
		}
		a, err := m.Apply(index, b)
		if err != nil {
			t.Fatal(err)
		}
		return a.Refusal
	}
	do(&state.Command{Change: cluster.Change{Register: &cluster.Register{Node: cluster.Node{ID: ident.NodeID{1}, Name: "a", Roles: []string{"broker"}}}}})
	do(&state.Command{Change: cluster.Change{Activate: &cluster.Activate{Node: ident.NodeID{1}, Epoch: 1}}})
	create := func(i, partitions int) *cluster.Refusal {
		return do(&state.Command{Change: cluster.Change{Create: &cluster.Create{
			ID:   ident.TopicID{1, byte(i >> 8), byte(i)},
			Spec: cluster.TopicSpec{Name: fmt.Sprint("t", i), Partitions: &partitions},
		}}})
	}
	full := state.MaxPartitions / cluster.MaxPartitions
	for i := range full {
		if r := create(i, cluster.MaxPartitions); r != nil {
			t.Fatal(r)
		}
	}
	if r := create(full, cluster.MaxPartitions); r == nil || r.Code != "limit" {
		t.Fatal("more partitions than the bound", r)
	}
	rest := state.MaxPartitions - full*cluster.MaxPartitions
	if r := create(full, rest); r != nil {
		t.Fatal(r)
	}
	if r := do(&state.Command{Change: cluster.Change{Delete: &cluster.Delete{Name: "t0"}}}); r != nil {
		t.Fatal(r)
	}
	if r := create(full+1, cluster.MaxPartitions); r != nil {
		t.Fatal("room came back and was refused", r)
	}
}

func TestTimeNeverFalls(t *testing.T) {
	m := state.New()
	index := uint64(0)
	do := func(c *state.Command) cluster.Answer {
		index++
		c.Request = state.RequestID{byte(index)}
		b, _ := state.Encode(c)
		a, err := m.Apply(index, b)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	do(&state.Command{Time: 5000, Change: cluster.Change{Register: &cluster.Register{Node: cluster.Node{ID: ident.NodeID{1}, Name: "a", Roles: []string{"broker"}}}}})
	do(&state.Command{Change: cluster.Change{Activate: &cluster.Activate{Node: ident.NodeID{1}, Epoch: 1}}})
	a := do(&state.Command{Time: 10, Change: cluster.Change{Create: &cluster.Create{ID: ident.TopicID{1}, Spec: cluster.TopicSpec{Name: "x"}}}})
	if got := a.Topic.Created.UnixMilli(); got != 5000 {
		t.Fatalf("a clock that went back gave %d", got)
	}
}

package state_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tidewire/coordinator/layout"
	"tidewire/coordinator/state"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// drawCommand makes a command that often hits something.
func drawCommand(t *rapid.T, n byte) []byte {
	name := rapid.SampledFrom([]string{"a", "b", "c", "_d", ""}).Draw(t, "name")
	opt := func(label string, of ...int) *int {
		if v := rapid.SampledFrom(append(of, -1)).Draw(t, label); v >= 0 {
			return &v
		}
		return nil
	}
	patch := cluster.SettingsPatch{Replicas: opt("replicas", 0, 1, 2, 3), MinInsync: opt("min_insync", 1, 2)}
	if rapid.Bool().Draw(t, "age") {
		patch.RetentionAge = new(rapid.SampledFrom([]time.Duration{0, time.Hour, 1}).Draw(t, "retention"))
	}
	c := &state.Command{
		Request: state.RequestID{1, rapid.SampledFrom([]byte{n, n, n, n / 2}).Draw(t, "request")}, // some are retries
		Time:    rapid.Int64Range(0, 1<<40).Draw(t, "time"),
	}
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0:
		c.Found = &state.Found{Cluster: ident.ClusterID{n}}
	case 1, 2, 3:
		id := rapid.ByteRange(1, 4).Draw(t, "node")
		c.Register = &state.Register{Node: cluster.Node{
			ID: ident.NodeID{id}, Name: fmt.Sprint("n", id), Storage: ident.StorageID{id, rapid.SampledFrom([]byte{0, 0, 0, n}).Draw(t, "storage")},
			Roles: []string{rapid.SampledFrom([]string{"broker", "broker", "gateway"}).Draw(t, "role")},
		}}
	case 4, 5, 6:
		c.Create = &state.Create{ID: ident.TopicID{n}, Spec: cluster.TopicSpec{Name: name, Partitions: opt("partitions", 0, 1, 3, 7), SettingsPatch: patch}}
	case 7, 8:
		c.Alter = &state.Alter{Name: name, Patch: patch}
	default:
		c.Delete = &state.Delete{Name: name}
	}
	b, err := state.Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

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
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.IntRange(1, 40).Draw(t, "commands")
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
			b := drawCommand(t, byte(i+1))
			index := uint64(2*i + 3) // raft's own entries take indexes too
			got := apply(t, replayed, index, b)
			if i < cut {
				apply(t, restored, index, b)
			} else if other := apply(t, restored, index, b); other != got {
				t.Fatalf("answers differ:\n%s\n%s", got, other)
			}
			invariants(t, replayed.Snapshot())
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

// invariants hold after every command.
func invariants(t *rapid.T, s *cluster.Snapshot) {
	if len(s.Topics) != len(s.ByID) {
		t.Fatal("topics by name and by id differ")
	}
	for name, topic := range s.Topics {
		if topic.Name != name || s.ByID[topic.ID] != topic || s.Deleted[topic.ID] != 0 {
			t.Fatalf("topic %s is filed wrongly", name)
		}
		if topic.Modified == 0 || topic.Modified > s.Index {
			t.Fatalf("topic %s was modified at %d of %d", name, topic.Modified, s.Index)
		}
		var ranges []ident.HashRange
		for _, p := range topic.Partitions {
			ranges = append(ranges, p.Range)
			if !slices.Contains(p.ISR, p.Leader) || p.LeaderEpoch == 0 || p.Version == 0 {
				t.Fatalf("topic %s: %+v", name, p)
			}
			for _, n := range p.ISR {
				if !slices.Contains(p.Replicas, n) {
					t.Fatalf("topic %s: %v is in sync but no replica: %+v", name, n, p)
				}
			}
			if len(p.Replicas) != topic.Settings.Replicas {
				t.Fatalf("topic %s: %d replicas of %d", name, len(p.Replicas), topic.Settings.Replicas)
			}
		}
		if err := layout.Check(ranges); err != nil {
			t.Fatal(err)
		}
	}
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
	do(&state.Command{Register: &state.Register{Node: cluster.Node{ID: ident.NodeID{1}, Name: "a", Roles: []string{"broker"}}}})
	const more = 3
	var first [more]uint64
	for i := range state.MaxDeleted + more {
		do(&state.Command{Create: &state.Create{ID: ident.TopicID{1, byte(i >> 8), byte(i)}, Spec: cluster.TopicSpec{Name: "x"}}})
		do(&state.Command{Delete: &state.Delete{Name: "x"}})
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
	do := func(c *state.Command) *state.Refusal {
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
	do(&state.Command{Register: &state.Register{Node: cluster.Node{ID: ident.NodeID{1}, Name: "a", Roles: []string{"broker"}}}})
	create := func(i, partitions int) *state.Refusal {
		return do(&state.Command{Create: &state.Create{
			ID:   ident.TopicID{1, byte(i >> 8), byte(i)},
			Spec: cluster.TopicSpec{Name: fmt.Sprint("t", i), Partitions: &partitions},
		}})
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
	if r := do(&state.Command{Delete: &state.Delete{Name: "t0"}}); r != nil {
		t.Fatal(r)
	}
	if r := create(full+1, cluster.MaxPartitions); r != nil {
		t.Fatal("room came back and was refused", r)
	}
}

func TestTimeNeverFalls(t *testing.T) {
	m := state.New()
	index := uint64(0)
	do := func(c *state.Command) state.Answer {
		index++
		c.Request = state.RequestID{byte(index)}
		b, _ := state.Encode(c)
		a, err := m.Apply(index, b)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	do(&state.Command{Time: 5000, Register: &state.Register{Node: cluster.Node{ID: ident.NodeID{1}, Name: "a", Roles: []string{"broker"}}}})
	a := do(&state.Command{Time: 10, Create: &state.Create{ID: ident.TopicID{1}, Spec: cluster.TopicSpec{Name: "x"}}})
	if got := a.Topic.Created.UnixMilli(); got != 5000 {
		t.Fatalf("a clock that went back gave %d", got)
	}
}

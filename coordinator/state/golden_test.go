package state_test

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"tidewire/coordinator/state"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/testkit/scenario"
)

// The bytes of format 1 as they lie on disks of clusters of one node: they give what
// they gave, from the log and from the snapshot alike.
func TestFormatOneStaysReadable(t *testing.T) {
	commands, snapshot := golden(t, "testdata/format1.golden")
	if len(commands) != 6 {
		t.Fatalf("%d commands", len(commands))
	}
	replayed := state.New()
	for i, b := range commands {
		if a, err := replayed.Apply(uint64(i+1), b); err != nil || a.Refusal != nil {
			t.Fatal(i, a.Refusal, err)
		}
	}
	restored, err := state.Restore(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := encode(t, replayed), encode(t, restored); !bytes.Equal(a, b) {
		t.Fatalf("log and snapshot differ:\n%s\n%s", a, b)
	}
	s := restored.Snapshot()
	x, ok := s.Topic("x")
	if !ok || x.Partitions[2].Leader != (ident.NodeID{1}) || s.Nodes[ident.NodeID{1}].State != cluster.Alive {
		t.Fatalf("%+v", x)
	}

	// The node comes back under this version, with a folder that has noted nothing.
	c := &cluster.Register{Node: *s.Nodes[ident.NodeID{1}]}
	for i, change := range []cluster.Change{{Register: c}, {Activate: &cluster.Activate{Node: c.Node.ID, Epoch: 7}}} {
		b, err := state.Encode(&state.Command{Request: state.RequestID{1, byte(i)}, Change: change})
		if err != nil {
			t.Fatal(err)
		}
		if a, err := restored.Apply(uint64(i+7), b); err != nil || a.Refusal != nil {
			t.Fatal(a.Refusal, err)
		}
	}
	x, _ = restored.Snapshot().Topic("x")
	if p := x.Partitions[0]; p.Leader != c.Node.ID || p.LeaderEpoch != 3 {
		t.Fatalf("%+v", p)
	}
}

// The bytes of format 2, which knew no groups, likewise.
func TestFormatTwoStaysReadable(t *testing.T) {
	commands, snapshot := golden(t, "testdata/format2.golden")
	if len(commands) != 23 {
		t.Fatalf("%d commands", len(commands))
	}
	replayed := state.New()
	for i, b := range commands {
		if _, err := replayed.Apply(uint64(i+1), b); err != nil {
			t.Fatal(i, err)
		}
	}
	restored, err := state.Restore(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := encode(t, replayed), encode(t, restored); !bytes.Equal(a, b) {
		t.Fatalf("log and snapshot differ:\n%s\n%s", a, b)
	}
}

// The bytes of format 3. A change here means that a new version cannot read an old
// store: it needs a new format number beside the old ones.
func TestFormatThreeStaysTheSame(t *testing.T) {
	m, commands := sample(t)
	all := append(commands, encode(t, m))
	got := bytes.Join(all, []byte("\n"))
	const path = "testdata/format3.golden"
	if scenario.Rewrite() {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("the format has changed:\n%s\n%s", want, got)
	}
	if _, err := state.Restore(all[len(all)-1]); err != nil {
		t.Fatal(err)
	}
}

// golden takes a file apart: commands, each with a line end behind it, and a snapshot.
func golden(t *testing.T, path string) (commands [][]byte, snapshot []byte) {
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for !bytes.HasPrefix(b, []byte("TWST")) {
		d := json.NewDecoder(bytes.NewReader(b[5:])) // past version and checksum
		var body json.RawMessage
		if err := d.Decode(&body); err != nil {
			t.Fatal(err)
		}
		end := 5 + int(d.InputOffset())
		commands, b = append(commands, b[:end]), b[end+1:]
	}
	return commands, b
}

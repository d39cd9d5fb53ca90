package coordinator

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

func TestTakeoversAreLoggedOnceWithTheirReason(t *testing.T) {
	a, b, c := ident.NodeID{1}, ident.NodeID{2}, ident.NodeID{3}
	topic := &cluster.Topic{ID: ident.TopicID{9}, Name: "orders", Settings: cluster.Settings{MinInsync: 2}, Partitions: []cluster.Partition{
		{Index: 0, Leader: a, ISR: []ident.NodeID{a}, ELR: []ident.NodeID{b, c}},
		{Index: 1, ISR: []ident.NodeID{a}, ELR: []ident.NodeID{b}},
		{Index: 2, Leader: a, ISR: []ident.NodeID{a, b}},
		{Index: 3, Leader: a, ISR: []ident.NodeID{a}, ELR: []ident.NodeID{b}},
	}}
	before := &cluster.Snapshot{
		Nodes: map[ident.NodeID]*cluster.Node{a: {ID: a, Name: "n1"}, b: {ID: b, Name: "n2"}},
		ByID:  map[ident.TopicID]*cluster.Topic{topic.ID: topic},
	}
	var elect cluster.Elect
	for i := range topic.Partitions {
		elect.Of = append(elect.Of, cluster.ElectOf{Partition: topic.Ref(ident.Index(i)), Leader: b, Takeover: i != 2})
	}
	var out bytes.Buffer
	logTakeovers(slog.New(slog.NewTextHandler(&out, nil)), before, &elect, []bool{true, true, true, false})
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 {
		t.Fatal(out.String())
	}
	for i, want := range [][]string{
		{"topic=orders partition=0 leader=n2 before=n1 in_sync=[n1] min_insync=2", "too few replicas in sync"},
		{"topic=orders partition=1 leader=n2 before=nobody", "nobody leads it"},
	} {
		for _, part := range want {
			if !strings.Contains(lines[i], part) {
				t.Errorf("%q lacks %q", lines[i], part)
			}
		}
	}
}

package host

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// TestAnUncleanElectionIsToldOnce follows a partition through elections, clean and not.
func TestAnUncleanElectionIsToldOnce(t *testing.T) {
	a, b := ident.NodeID{1}, ident.NodeID{2}
	nodes := map[ident.NodeID]*cluster.Node{a: {ID: a, Name: "n1"}, b: {ID: b, Name: "n2"}}
	var out bytes.Buffer
	h := &Host{cfg: Config{Node: b, Logger: slog.New(slog.NewTextHandler(&out, nil))}}
	for _, step := range []struct {
		what string
		part cluster.Partition
		says string // "": nothing
	}{
		{"another leads", cluster.Partition{Leader: a, LeaderEpoch: 1, ISR: []ident.NodeID{a, b}}, ""},
		{"nobody does", cluster.Partition{LeaderEpoch: 1, ISR: []ident.NodeID{a}}, ""},
		{"this one does, uncleanly", cluster.Partition{Leader: b, LeaderEpoch: 2, Unclean: 2, ISR: []ident.NodeID{b}}, "topic=orders partition=0 leader=n2 before=nobody in_sync=[n1] epoch=2 end=17"},
		{"something else changes", cluster.Partition{Leader: b, LeaderEpoch: 2, Unclean: 2, ISR: []ident.NodeID{b, a}}, ""},
		{"it leads again", cluster.Partition{Leader: b, LeaderEpoch: 3, Unclean: 2, ISR: []ident.NodeID{b, a}}, ""},
		{"another does, uncleanly", cluster.Partition{Leader: a, LeaderEpoch: 4, Unclean: 4, ISR: []ident.NodeID{a}}, ""},
		{"this one does in its place, uncleanly", cluster.Partition{Leader: b, LeaderEpoch: 5, Unclean: 5, ISR: []ident.NodeID{b}}, "before=n1 in_sync=[n1] epoch=5"},
	} {
		topic := &cluster.Topic{ID: topicID, Name: "orders", Partitions: []cluster.Partition{step.part}}
		before := h.snapshot
		h.snapshot = &cluster.Snapshot{Nodes: nodes, ByID: map[ident.TopicID]*cluster.Topic{topicID: topic}}
		out.Reset()
		h.tellUnclean(before, topic, &topic.Partitions[0], 17)
		if said := out.String(); !strings.Contains(said, step.says) || (said == "") != (step.says == "") {
			t.Errorf("%s: %q", step.what, said)
		}
	}
}

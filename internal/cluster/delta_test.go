package cluster_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// world makes a history of snapshots the way the coordinator does: a change
// replaces what it changes, and stamps it with its index.
type world struct {
	now      cluster.Snapshot
	order    []ident.TopicID // deleted, oldest first
	remember int
}

func (w *world) step(t *rapid.T) {
	w.now.Index += uint64(rapid.IntRange(1, 3).Draw(t, "skip"))
	w.now.Topics, w.now.ByID = maps.Clone(w.now.Topics), maps.Clone(w.now.ByID)
	w.now.Nodes, w.now.Deleted = maps.Clone(w.now.Nodes), maps.Clone(w.now.Deleted)
	name := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "name")
	node := ident.NodeID{byte(rapid.IntRange(1, 4).Draw(t, "node"))}
	old := w.now.Topics[name]
	if old != nil && rapid.Bool().Draw(t, "a group") {
		w.group(t, old.ID)
		return
	}
	switch rapid.SampledFrom([]string{"put", "put", "delete", "node", "retire"}).Draw(t, "what") {
	case "put":
		n := &cluster.Topic{ID: ident.TopicID{byte(w.now.Index), byte(w.now.Index >> 8)}, Name: name, Modified: w.now.Index}
		if old != nil {
			n.ID = old.ID
		}
		w.now.Topics[name], w.now.ByID[n.ID] = n, n
	case "delete":
		if old == nil {
			return
		}
		delete(w.now.Topics, name)
		delete(w.now.ByID, old.ID)
		w.now.Deleted[old.ID] = w.now.Index
		w.order = append(w.order, old.ID)
		w.now.Groups = maps.Clone(w.now.Groups)
		delete(w.now.Groups, old.ID)
		for len(w.order) > w.remember {
			w.now.DeletedFloor = w.now.Deleted[w.order[0]]
			delete(w.now.Deleted, w.order[0])
			w.order = w.order[1:]
		}
	case "node":
		w.now.Nodes[node] = &cluster.Node{ID: node, Roles: []string{"broker"}, BrokerEpoch: ident.BrokerEpoch(w.now.Index), Since: time.UnixMilli(int64(w.now.Index)).UTC()}
	case "retire":
		delete(w.now.Nodes, node)
	}
}

// group registers, changes or deletes a group of a topic, or many of them.
func (w *world) group(t *rapid.T, topic ident.TopicID) {
	w.now.Groups = maps.Clone(w.now.Groups)
	var names []string
	for i := range rapid.SampledFrom([]int{1, 1, 1, 1, 90}).Draw(t, "so many") {
		names = append(names, fmt.Sprint(rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "group"), i))
	}
	if rapid.IntRange(0, 2).Draw(t, "gone") > 0 {
		for _, name := range names {
			g := &cluster.Group{ID: ident.GroupID{byte(w.now.Index), byte(w.now.Index >> 8)}, Topic: topic, Name: name, Modified: w.now.Index}
			if old := w.now.Groups[topic].Get(name); old != nil {
				g.ID = old.ID
			}
			w.now.Groups[topic] = w.now.Groups[topic].With(g)
		}
		return
	}
	for _, name := range names {
		old := w.now.Groups[topic].Get(name)
		if old == nil {
			continue
		}
		if w.now.Groups[topic] = w.now.Groups[topic].Without(name); w.now.Groups[topic] == nil {
			delete(w.now.Groups, topic)
		}
		w.now.GroupsGone = append(slices.Clip(w.now.GroupsGone), cluster.GroupGone{Topic: topic, Name: name, ID: old.ID, Index: w.now.Index})
	}
	for len(w.now.GroupsGone) > 20*w.remember {
		w.now.GroupsFloor = w.now.GroupsGone[0].Index
		w.now.GroupsGone = w.now.GroupsGone[1:]
	}
}

func (w *world) snapshot() *cluster.Snapshot {
	s := w.now
	return &s
}

func newWorld() *world {
	return &world{remember: 3, now: cluster.Snapshot{
		Cluster: ident.ClusterID{1}, Index: 1,
		Topics: map[string]*cluster.Topic{}, ByID: map[ident.TopicID]*cluster.Topic{},
		Nodes: map[ident.NodeID]*cluster.Node{}, Deleted: map[ident.TopicID]uint64{}, Groups: map[ident.TopicID]*cluster.GroupTable{},
	}}
}

// carried is the delta as it comes out at the other end of a stream.
func carried(t *rapid.T, d *cluster.Delta) *cluster.Delta {
	var out *cluster.Delta
	for part := range d.Parts() {
		b, err := json.Marshal(part)
		if err != nil {
			t.Fatal(err)
		}
		got := new(cluster.Delta)
		if err := json.Unmarshal(b, got); err != nil {
			t.Fatal(err)
		}
		if out == nil {
			out = got
		} else if err := out.Join(got); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func TestChangesLeadFromAnySnapshotToAnyLaterOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		all := []*cluster.Snapshot{{}, w.snapshot()}
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			w.step(t)
			all = append(all, w.snapshot())
		}
		i := rapid.IntRange(0, len(all)-1).Draw(t, "from")
		j := rapid.IntRange(max(i, 1), len(all)-1).Draw(t, "to")
		from, to := all[i], all[j]
		before := *from
		mark := from.Mark()
		if rapid.Bool().Draw(t, "by the index alone") { // as who reconnects says it
			mark.Nodes = nil
		}
		got, err := carried(t, to.Since(mark)).Apply(from)
		if err != nil {
			t.Fatal(err)
		}
		want := *to
		want.GroupsGone, want.GroupsFloor = nil, 0 // of a coordinator alone
		if !reflect.DeepEqual(got, &want) {
			t.Fatalf("from %d to %d:\ngot  %+v\nwant %+v", from.Index, to.Index, got, &want)
		}
		if !reflect.DeepEqual(*from, before) {
			t.Fatal("the snapshot that the changes were applied to has changed")
		}
	})
}

func TestChangesThatDoNotFitAreRefused(t *testing.T) {
	here := &cluster.Snapshot{Cluster: ident.ClusterID{1}, Index: 5}
	for name, d := range map[string]cluster.Delta{
		"a gap":             {From: 6, To: 7, Cluster: here.Cluster},
		"another cluster":   {From: 5, To: 7, Cluster: ident.ClusterID{2}},
		"backwards":         {From: 5, To: 4, Cluster: here.Cluster},
		"a topic of nobody": {From: 5, To: 6, Cluster: here.Cluster, Topics: []*cluster.Topic{nil}},
		"a node of nobody":  {From: 5, To: 6, Cluster: here.Cluster, Nodes: []*cluster.Node{nil}},
		"a group of nobody": {From: 5, To: 6, Cluster: here.Cluster, Groups: []*cluster.Group{nil}},
	} {
		if _, err := d.Apply(here); err == nil {
			t.Errorf("%s was applied", name)
		}
	}
}

func TestOnlyWhatChangedTravels(t *testing.T) {
	w := newWorld()
	for i := range 50 {
		n := &cluster.Topic{ID: ident.TopicID{byte(i + 1)}, Name: string(rune('A' + i)), Modified: 2}
		w.now.Topics[n.Name], w.now.ByID[n.ID] = n, n
	}
	w.now.Index = 2
	from := w.snapshot()
	w.now.Topics, w.now.ByID = maps.Clone(w.now.Topics), maps.Clone(w.now.ByID)
	n := &cluster.Topic{ID: ident.TopicID{1}, Name: "A", Modified: 3}
	w.now.Topics["A"], w.now.ByID[n.ID], w.now.Index = n, n, 3
	d := w.snapshot().Since(from.Mark())
	if !slices.Equal(d.Topics, []*cluster.Topic{n}) || len(d.Nodes)+len(d.Deleted)+len(d.NodesGone) != 0 {
		t.Fatalf("%+v", d)
	}
}

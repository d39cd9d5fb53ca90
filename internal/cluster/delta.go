package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"tidewire/internal/ident"
)

// Delta is what changed from one snapshot to a later one. From 0 it is the whole
// of the later one.
type Delta struct {
	From, To uint64 // indexes
	Cluster  ident.ClusterID
	Topics   []*Topic `json:",omitempty"` // new and changed, whole
	Nodes    []*Node  `json:",omitempty"` // new and changed, whole
	// AllNodes says that Nodes are all there are.
	AllNodes  bool           `json:",omitempty"`
	NodesGone []ident.NodeID `json:",omitempty"`
	// Deleted are the topics that went since From; from 0, those that are remembered.
	Deleted      []Deletion `json:",omitempty"`
	DeletedFloor uint64
	Groups       []*Group `json:",omitempty"` // new and changed, whole
	// GroupsGone are the groups that went since From, but for those that went with
	// their topics.
	GroupsGone []GroupGone `json:",omitempty"`
	// More says that this is a part, and another one of the same delta follows.
	More bool `json:",omitempty"`
}

// Deletion is the end of one life of a topic.
type Deletion struct {
	Topic ident.TopicID
	Index uint64
}

// GroupGone is the end of one life of a group.
type GroupGone struct {
	Topic ident.TopicID
	Name  string
	ID    ident.GroupID
	Index uint64
}

// Mark is as much of a snapshot as is needed to tell what changed since. It holds no
// topics and no groups: whoever is slow keeps no old ones alive.
type Mark struct {
	Index uint64
	Nodes map[ident.NodeID]*Node // nil: not known
}

// Mark of the snapshot.
func (s *Snapshot) Mark() Mark { return Mark{s.Index, s.Nodes} }

// Since is what leads from a mark to a later snapshot of the same cluster. A topic
// and a group count as changed by their Modified, a node by its value. It is the whole
// where deletions that count are no longer remembered.
func (s *Snapshot) Since(from Mark) *Delta {
	if from.Index < max(s.DeletedFloor, s.GroupsFloor) {
		from = Mark{}
	}
	d := &Delta{From: from.Index, To: s.Index, Cluster: s.Cluster, DeletedFloor: s.DeletedFloor, AllNodes: from.Nodes == nil}
	for _, t := range s.ByID {
		if t.Modified > from.Index {
			d.Topics = append(d.Topics, t)
		}
	}
	for id, n := range s.Nodes {
		if old, known := from.Nodes[id]; !known || old != n && !old.Equal(n) {
			d.Nodes = append(d.Nodes, n)
		}
	}
	for id := range from.Nodes {
		if _, there := s.Nodes[id]; !there {
			d.NodesGone = append(d.NodesGone, id)
		}
	}
	for id, index := range s.Deleted {
		if index > from.Index {
			d.Deleted = append(d.Deleted, Deletion{id, index})
		}
	}
	for _, t := range s.Groups {
		for g := range t.Since(from.Index) {
			d.Groups = append(d.Groups, g)
		}
	}
	if from.Index > 0 { // the whole has no group that went
		i, _ := slices.BinarySearchFunc(s.GroupsGone, from.Index+1, func(g GroupGone, index uint64) int { return cmp.Compare(g.Index, index) })
		d.GroupsGone = s.GroupsGone[i:]
	}
	return d
}

// Apply is the snapshot to which the delta leads from s, which is left as it is. A
// delta that does not begin where s stands, or leads nowhere, is an error.
func (d *Delta) Apply(s *Snapshot) (*Snapshot, error) {
	switch {
	case d.More:
		return nil, fmt.Errorf("changes from index %d are not all there", d.From)
	case d.From == 0:
		s = &Snapshot{}
	case s.Index != d.From:
		return nil, fmt.Errorf("changes from index %d do not fit to index %d", d.From, s.Index)
	case s.Cluster != (ident.ClusterID{}) && s.Cluster != d.Cluster:
		return nil, fmt.Errorf("changes of cluster %s do not fit to cluster %s", d.Cluster, s.Cluster)
	}
	if d.To < d.From {
		return nil, fmt.Errorf("changes lead from index %d back to %d", d.From, d.To)
	}
	out := &Snapshot{
		Cluster: d.Cluster, Index: d.To, DeletedFloor: d.DeletedFloor,
		Topics: s.Topics, ByID: s.ByID, Nodes: s.Nodes, Deleted: s.Deleted, Groups: s.Groups,
	}
	if err := d.applyTopics(out, s.DeletedFloor); err != nil {
		return nil, err
	}
	if err := d.applyGroups(out); err != nil {
		return nil, err
	}
	return out, d.applyNodes(out)
}

func (d *Delta) applyTopics(out *Snapshot, before uint64) error {
	if len(d.Topics)+len(d.Deleted) > 0 || out.Topics == nil {
		out.Topics, out.ByID = copied(out.Topics), copied(out.ByID)
	}
	for _, gone := range d.Deleted {
		if t := out.ByID[gone.Topic]; t != nil {
			delete(out.Topics, t.Name)
			delete(out.ByID, gone.Topic)
		}
	}
	for _, t := range d.Topics {
		if t == nil {
			return fmt.Errorf("changes up to index %d hold a topic that is none", d.To)
		}
		out.Topics[t.Name], out.ByID[t.ID] = t, t
	}
	if len(d.Deleted) > 0 || d.DeletedFloor != before || out.Deleted == nil {
		out.Deleted = copied(out.Deleted)
		maps.DeleteFunc(out.Deleted, func(_ ident.TopicID, index uint64) bool { return index <= d.DeletedFloor })
	}
	for _, gone := range d.Deleted {
		out.Deleted[gone.Topic] = gone.Index
	}
	return nil
}

func (d *Delta) applyNodes(out *Snapshot) error {
	if d.AllNodes {
		out.Nodes = nil
	}
	if len(d.Nodes)+len(d.NodesGone) > 0 || out.Nodes == nil {
		out.Nodes = copied(out.Nodes)
	}
	for _, id := range d.NodesGone {
		delete(out.Nodes, id)
	}
	for _, n := range d.Nodes {
		if n == nil {
			return fmt.Errorf("changes up to index %d hold a node that is none", d.To)
		}
		out.Nodes[n.ID] = n
	}
	return nil
}

// applyGroups forgets what went before it takes in what there is: a group may have been
// registered again under the same name.
func (d *Delta) applyGroups(out *Snapshot) error {
	if len(d.Groups)+len(d.GroupsGone)+len(d.Deleted) > 0 || out.Groups == nil {
		out.Groups = copied(out.Groups)
	}
	for _, gone := range d.Deleted {
		delete(out.Groups, gone.Topic)
	}
	for _, gone := range d.GroupsGone {
		t := out.Groups[gone.Topic]
		if g := t.Get(gone.Name); g == nil || g.ID != gone.ID {
			continue
		}
		if t = t.Without(gone.Name); t == nil {
			delete(out.Groups, gone.Topic)
		} else {
			out.Groups[gone.Topic] = t
		}
	}
	of := map[ident.TopicID][]*Group{}
	for _, g := range d.Groups {
		if g == nil {
			return fmt.Errorf("changes up to index %d hold a group that is none", d.To)
		}
		of[g.Topic] = append(of[g.Topic], g)
	}
	for topic, groups := range of {
		out.Groups[topic] = out.Groups[topic].With(groups...)
	}
	return nil
}

func copied[K comparable, V any](m map[K]V) map[K]V {
	c := make(map[K]V, len(m)+1)
	maps.Copy(c, m)
	return c
}

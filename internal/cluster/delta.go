package cluster

import (
	"fmt"
	"maps"

	"tidewire/internal/ident"
)

// Delta is what changed from one snapshot to a later one. From 0 it is the whole
// of the later one.
type Delta struct {
	From, To     uint64 // indexes
	Cluster      ident.ClusterID
	Topics       []*Topic        `json:",omitempty"` // new and changed, whole
	TopicsGone   []ident.TopicID `json:",omitempty"`
	Nodes        []*Node         `json:",omitempty"` // new and changed, whole
	NodesGone    []ident.NodeID  `json:",omitempty"`
	Deleted      []Deletion      `json:",omitempty"` // since From, and still remembered
	DeletedFloor uint64
}

// Deletion is the end of one life of a topic.
type Deletion struct {
	Topic ident.TopicID
	Index uint64
}

// Between is what leads from one snapshot to a later one of the same cluster. A
// topic counts as changed by its Modified, a node by its value.
func Between(from, to *Snapshot) *Delta {
	d := &Delta{From: from.Index, To: to.Index, Cluster: to.Cluster, DeletedFloor: to.DeletedFloor}
	for id, t := range to.ByID {
		if old, known := from.ByID[id]; !known || old != t && t.Modified > from.Index {
			d.Topics = append(d.Topics, t)
		}
	}
	for id := range from.ByID {
		if _, there := to.ByID[id]; !there {
			d.TopicsGone = append(d.TopicsGone, id)
		}
	}
	for id, n := range to.Nodes {
		if old, known := from.Nodes[id]; !known || old != n && !old.Equal(n) {
			d.Nodes = append(d.Nodes, n)
		}
	}
	for id := range from.Nodes {
		if _, there := to.Nodes[id]; !there {
			d.NodesGone = append(d.NodesGone, id)
		}
	}
	for id, index := range to.Deleted {
		if index > from.Index {
			d.Deleted = append(d.Deleted, Deletion{id, index})
		}
	}
	return d
}

// Apply is the snapshot to which the delta leads from s, which is left as it is. A
// delta that does not begin where s stands, or leads nowhere, is an error.
func (d *Delta) Apply(s *Snapshot) (*Snapshot, error) {
	switch {
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
		Topics: s.Topics, ByID: s.ByID, Nodes: s.Nodes, Deleted: s.Deleted,
	}
	if err := d.applyTopics(out, s.DeletedFloor); err != nil {
		return nil, err
	}
	return out, d.applyNodes(out)
}

func (d *Delta) applyTopics(out *Snapshot, before uint64) error {
	if len(d.Topics)+len(d.TopicsGone) > 0 || out.Topics == nil {
		out.Topics, out.ByID = copied(out.Topics), copied(out.ByID)
	}
	for _, id := range d.TopicsGone {
		if t := out.ByID[id]; t != nil {
			delete(out.Topics, t.Name)
			delete(out.ByID, id)
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

func copied[K comparable, V any](m map[K]V) map[K]V {
	c := make(map[K]V, len(m)+1)
	maps.Copy(c, m)
	return c
}

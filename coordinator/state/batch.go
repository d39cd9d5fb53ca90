package state

import (
	"cmp"
	"slices"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// batch is the topics that one command changes. Each is copied once, however many
// of its partitions change, and all are stored when the command is done.
type batch struct {
	m      *Machine
	topics map[ident.TopicID]*cluster.Topic // copies
	led    map[ident.NodeID]int             // partitions led, more or fewer than before the command
}

func (m *Machine) begins() *batch {
	return &batch{m: m, topics: map[ident.TopicID]*cluster.Topic{}, led: map[ident.NodeID]int{}}
}

// topic finds a topic as the command has left it so far; nil: there is none.
func (b *batch) topic(id ident.TopicID) *cluster.Topic {
	if t := b.topics[id]; t != nil {
		return t
	}
	return b.m.view.ByID[id]
}

// find gives a partition to look at; nil: there is none.
func (b *batch) find(ref ident.Partition) (*cluster.Topic, *cluster.Partition) {
	t := b.topic(ref.Topic)
	if t == nil {
		return nil, nil
	}
	p, ok := t.Partition(ref.Index)
	if !ok {
		return nil, nil
	}
	return t, p
}

// edit changes one partition of the command's copy. What is inside the slices of
// a partition is shared with snapshots: change must replace them, never write into them.
// The version moves if anything else did.
func (b *batch) edit(ref ident.Partition, change func(*cluster.Topic, *cluster.Partition)) {
	t, p := b.find(ref)
	if p == nil {
		return
	}
	was := *p
	now := was
	change(t, &now)
	if now.Leader != (ident.NodeID{}) {
		b.completes(t, &now)
	}
	settle(&now, t.Settings.MinInsync)
	if same(&was, &now) {
		return
	}
	now.Version = was.Version + 1
	own := b.own(t)
	*at(own, ref.Index) = now
}

// each edits every partition that the condition holds for, topics by their names: an
// election weighs what the elections before it gave to whom, so the order counts.
func (b *batch) each(concerned func(*cluster.Partition) bool, change func(*cluster.Topic, *cluster.Partition)) {
	var topics []*cluster.Topic
	for id := range b.m.view.ByID {
		t := b.topic(id)
		for k := range t.Partitions {
			if concerned(&t.Partitions[k]) {
				topics = append(topics, t)
				break
			}
		}
	}
	slices.SortFunc(topics, func(x, y *cluster.Topic) int { return cmp.Compare(x.Name, y.Name) })
	for _, t := range topics {
		for k := range t.Partitions {
			if concerned(&t.Partitions[k]) {
				b.edit(t.Ref(t.Partitions[k].Index), change)
			}
		}
	}
}

// own gives the command's copy of a topic.
func (b *batch) own(t *cluster.Topic) *cluster.Topic {
	if c := b.topics[t.ID]; c != nil {
		return c
	}
	c := *t
	c.Partitions = slices.Clone(t.Partitions)
	b.topics[t.ID] = &c
	return &c
}

// done stores what has changed.
func (b *batch) done() {
	for _, t := range b.topics { // in any order: each is stored by itself
		t.Modified = b.m.view.Index
		b.m.put(t)
	}
}

// at finds a partition that is known to be there.
func at(t *cluster.Topic, i ident.Index) *cluster.Partition {
	p, _ := t.Partition(i)
	return p
}

// settle brings a changed partition into its one form: ISR and ELR in the order of
// the replicas, and no ELR while the ISR is large enough for the high watermark to
// move, because then those outside fall behind what is committed (rule A3).
func settle(p *cluster.Partition, minInsync int) {
	if len(p.ISR) >= minInsync {
		p.ELR = nil
	}
	p.ISR = ordered(p.ISR, p.Replicas)
	p.ELR = ordered(p.ELR, p.Replicas)
}

// ordered sorts ids as they stand among the replicas; it copies only where it must.
func ordered(ids, replicas []ident.NodeID) []ident.NodeID {
	if len(ids) == 0 {
		return nil
	}
	place := func(a, b ident.NodeID) int {
		return cmp.Compare(slices.Index(replicas, a), slices.Index(replicas, b))
	}
	if slices.IsSortedFunc(ids, place) {
		return ids
	}
	ids = slices.Clone(ids)
	slices.SortStableFunc(ids, place)
	return ids
}

func same(a, b *cluster.Partition) bool {
	return a.Leader == b.Leader && a.LeaderEpoch == b.LeaderEpoch && a.Version == b.Version &&
		a.State == b.State && a.Unclean == b.Unclean && a.Unclamped == b.Unclamped && a.Purged == b.Purged &&
		slices.Equal(a.Replicas, b.Replicas) && slices.Equal(a.ISR, b.ISR) && slices.Equal(a.ELR, b.ELR) &&
		slices.Equal(a.Adding, b.Adding) && slices.Equal(a.Removing, b.Removing)
}

func without(ids []ident.NodeID, gone ...ident.NodeID) []ident.NodeID {
	return keep(ids, func(n ident.NodeID) bool { return !slices.Contains(gone, n) })
}

// keep copies those that a condition holds for.
func keep[T any](all []T, holds func(T) bool) []T {
	var out []T
	for _, n := range all {
		if holds(n) {
			out = append(out, n)
		}
	}
	return out
}

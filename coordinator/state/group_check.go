package state

import (
	"errors"
	"fmt"
	"slices"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// restoreGroups takes in the groups of a snapshot that was checked. Those who follow the
// feed from before it are told of everything: which groups went is not known.
func (m *Machine) restoreGroups(all []groupImage) {
	of := map[ident.TopicID][]*cluster.Group{}
	for _, i := range all {
		m.addGroup(&group{shown: i.Group, progress: i.Progress})
		of[i.Group.Topic] = append(of[i.Group.Topic], i.Group)
	}
	for topic, groups := range of {
		m.view.Groups[topic] = m.view.Groups[topic].With(groups...)
	}
	m.view.GroupsFloor = m.view.Index
}

// checkGroups finds what no machine could have written.
func (i *image) checkGroups() error {
	topics := map[ident.TopicID]*cluster.Topic{}
	for _, t := range i.Topics {
		topics[t.ID] = t
	}
	type place struct {
		topic ident.TopicID
		name  string
	}
	names, ids := map[place]bool{}, map[ident.GroupID]bool{}
	for k := range i.Groups {
		g := i.Groups[k].Group
		if g == nil {
			return errors.New("a group is missing")
		}
		at := place{g.Topic, g.Name}
		if ids[g.ID] || names[at] {
			return fmt.Errorf("group %q is there twice", clip(g.Name))
		}
		ids[g.ID], names[at] = true, true
		if err := i.Groups[k].check(topics[g.Topic], i.Index); err != nil {
			return fmt.Errorf("group %q: %w", clip(g.Name), err)
		}
	}
	return nil
}

func (i *groupImage) check(t *cluster.Topic, index uint64) error {
	g := i.Group
	if t == nil {
		return errors.New("its topic is not there")
	}
	if g.Modified > index {
		return errors.New("it was changed later than it can have been")
	}
	for k := range g.Members {
		if k > 0 && g.Members[k].ID <= g.Members[k-1].ID {
			return errors.New("its members are out of order")
		}
	}
	partitions := len(t.Partitions)
	if len(i.Progress) != partitions {
		return fmt.Errorf("it has the progress of %d partitions of %d", len(i.Progress), partitions)
	}
	if g.Settings.Mode != cluster.Exclusive {
		partitions = 0
	}
	if len(g.Owners) != partitions {
		return fmt.Errorf("it has %d owners of %d partitions", len(g.Owners), partitions)
	}
	for k := range g.Owners {
		o := &g.Owners[k]
		_, owns := g.Member(o.Member)
		_, waits := g.Member(o.Next)
		if o.Partition != t.Partitions[k].Index || o.Member != "" && !owns || o.Next != "" && (!waits || o.Member == "") {
			return fmt.Errorf("partition %d belongs to nobody of its members", o.Partition)
		}
		if (o.Next != "") != (o.Notice != 0) || o.Notice > index {
			return fmt.Errorf("the owner of partition %d was told to give it up, or not: the one or the other", o.Partition)
		}
	}
	for k := range i.Progress {
		p := &i.Progress[k]
		if p.Partition != t.Partitions[k].Index {
			return fmt.Errorf("it has a progress of partition %d and none of %d", p.Partition, t.Partitions[k].Index)
		}
		if err := checkProgress(p); err != nil {
			return fmt.Errorf("partition %d: %w", p.Partition, err)
		}
	}
	return nil
}

// checkProgress finds a progress in which an offset could be in two states, or the floor
// stand still below what is done.
func checkProgress(p *cluster.Progress) error {
	switch {
	case p.Start < 0 || p.Floor < p.Start || p.Floor > maxOffset || p.Sequence < 0 || p.Lost < 0:
		return errors.New("a start or floor that cannot be")
	case !formed(p.Done) || !formed(p.Dead) || !formed(p.Skipped) || !formed(p.Expired):
		return errors.New("spans that are out of order")
	case len(p.Done) > 0 && p.Done[0].From <= p.Floor:
		return errors.New("records at the floor that are done")
	case holds(p.Dead, p.Floor):
		return errors.New("a record at the floor that is dead")
	}
	for k, c := range p.Counts {
		if c.Offset < p.Floor || k > 0 && c.Offset <= p.Counts[k-1].Offset {
			return errors.New("counts that are out of order")
		}
	}
	for k, i := range p.Intents {
		if i.Offset < 0 || i.Offset >= maxOffset || i.Sequence < 0 || i.Sequence >= p.Sequence || k > 0 && i.Sequence <= p.Intents[k-1].Sequence {
			return errors.New("intents that are out of order")
		}
	}
	sets := [][]cluster.Span{p.Done, p.Dead, p.Skipped, p.Expired}
	for k, set := range sets {
		if !slices.Equal(less(set, union(sets[k+1:]...)), set) {
			return errors.New("a record that ended in two ways")
		}
	}
	return nil
}

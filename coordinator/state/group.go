package state

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

const (
	// MaxProgressBytes is about how much memory the progress of all groups may take
	// before no more groups are taken in.
	MaxProgressBytes = 512 << 20
	// maxGroupsGone is how many deleted groups are remembered for those who follow the feed.
	maxGroupsGone = 10_000
)

// group is a group as the machine holds it.
type group struct {
	shown    *cluster.Group     // never changed, only replaced
	progress []cluster.Progress // by partition, ascending; what its slices hold is never changed
	weight   int                // of the progress
	captures uint64             // of the machine, when progress was last its own alone
}

func (g *group) find(p ident.Index) *cluster.Progress {
	i, ok := slices.BinarySearchFunc(g.progress, p, func(x cluster.Progress, p ident.Index) int { return cmp.Compare(x.Partition, p) })
	if !ok {
		return nil
	}
	return &g.progress[i]
}

// register makes a group, or finds the one of that name equal in every setting that was
// given. Its starts are part of it from the first moment (rule B8).
func (m *Machine) groupRegister(c *cluster.GroupRegister) cluster.Answer {
	t := m.view.ByID[c.Topic]
	if t == nil {
		return cluster.Answer{Refusal: refuse(fault.TopicNotFound, "the topic is not there, or not any more; create it first")}
	}
	if r := checkGroup(c.Name, &c.Patch); r != nil {
		return cluster.Answer{Refusal: r}
	}
	if g := m.view.Groups[t.ID].Get(c.Name); g != nil {
		return existingGroup(t, g, &c.Patch)
	}
	s := groupDefaults(t, c.Name, &c.Patch)
	if r := checkDeadLetter(t, s.DeadLetter); r != nil {
		return cluster.Answer{Refusal: r}
	}
	if r := checkStarts(t, c.Starts); r != nil {
		return cluster.Answer{Refusal: r}
	}
	if len(c.Starts) != len(t.Partitions) {
		r := refuse(fault.Invalid, fmt.Sprintf("a group starts on each of the %d partitions of topic %s, not on %d", len(t.Partitions), t.Name, len(c.Starts)))
		r.Field = "starts"
		return cluster.Answer{Refusal: r}
	}
	if r := m.checkGroupRoom(len(t.Partitions)); r != nil {
		return cluster.Answer{Refusal: r}
	}
	if c.ID == (ident.GroupID{}) || m.groups[c.ID] != nil {
		return cluster.Answer{Refusal: refuse(fault.Internal, fmt.Sprintf("group id %s is not a new one", c.ID))}
	}

	g := &group{captures: m.captures, shown: &cluster.Group{
		ID: c.ID, Topic: t.ID, Name: c.Name, Settings: s, Created: m.time(), Modified: m.view.Index,
	}}
	for _, p := range c.Starts {
		g.progress = append(g.progress, began(p))
	}
	slices.SortFunc(g.progress, func(a, b cluster.Progress) int { return cmp.Compare(a.Partition, b.Partition) })
	if s.Mode == cluster.Exclusive {
		for i := range t.Partitions {
			g.shown.Owners = append(g.shown.Owners, cluster.Owner{Partition: t.Partitions[i].Index, Epoch: ident.Assignment(m.view.Index), Released: true})
		}
	}
	m.addGroup(g)
	m.showGroups(g.shown)
	return cluster.Answer{Created: true, Group: g.shown}
}

func (m *Machine) groupAlter(c *cluster.GroupAlter) cluster.Answer {
	g := m.groups[c.Group]
	if g == nil {
		return cluster.Answer{Refusal: noGroup()}
	}
	t := m.view.ByID[g.shown.Topic]
	if r := checkGroupPatch(&c.Patch); r != nil {
		return cluster.Answer{Refusal: r}
	}
	if v := c.Patch.Mode; v != nil && *v != g.shown.Settings.Mode {
		r := outside(fieldMode, *v, fmt.Sprintf("%q, as it was registered", g.shown.Settings.Mode))
		r.Detail += "; a group of another mode is another group: delete this one, or choose another name"
		return cluster.Answer{Refusal: r}
	}
	s := groupPatched(g.shown.Settings, &c.Patch)
	if s == g.shown.Settings {
		return cluster.Answer{Group: g.shown}
	}
	if r := checkDeadLetter(t, s.DeadLetter); r != nil {
		return cluster.Answer{Refusal: r}
	}
	now := m.edit(g)
	now.Settings = s
	m.showGroups(now)
	return cluster.Answer{Group: now}
}

func (m *Machine) groupDelete(c *cluster.GroupDelete) cluster.Answer {
	g := m.groups[c.Group]
	if g == nil {
		return cluster.Answer{Refusal: noGroup()}
	}
	m.forgetGroup(g)
	m.ownGroups()
	topic, name := g.shown.Topic, g.shown.Name
	if left := m.view.Groups[topic].Without(name); left != nil {
		m.view.Groups[topic] = left
	} else {
		delete(m.view.Groups, topic)
	}
	m.view.GroupsGone = append(m.view.GroupsGone, cluster.GroupGone{Topic: topic, Name: name, ID: c.Group, Index: m.view.Index})
	for len(m.view.GroupsGone) > maxGroupsGone {
		m.view.GroupsFloor = m.view.GroupsGone[0].Index
		m.view.GroupsGone = m.view.GroupsGone[1:]
	}
	return cluster.Answer{}
}

// groupReset moves a group to other offsets. That is a new reset epoch for all of it, and
// the end of what its members hold.
func (m *Machine) groupReset(c *cluster.GroupReset) cluster.Answer {
	g := m.groups[c.Group]
	if g == nil {
		return cluster.Answer{Refusal: noGroup()}
	}
	if n := len(g.shown.Members); n > 0 && !c.Force {
		return cluster.Answer{Refusal: refuse(fault.GroupHasMembers, fmt.Sprintf("group %s has %d members: stop them first, or force the reset, which ends what they hold: they join again", g.shown.Name, n))}
	}
	if len(c.Starts) == 0 {
		return cluster.Answer{Refusal: refuse(fault.Invalid, "a reset names the partitions that it moves, and to which offsets")}
	}
	if r := checkStarts(m.view.ByID[g.shown.Topic], c.Starts); r != nil {
		return cluster.Answer{Refusal: r}
	}
	m.ownProgress(g)
	for _, at := range c.Starts {
		if p := g.find(at.Partition); p != nil {
			m.weigh(g, p, moved(*p, at.Offset))
		}
	}
	now := m.reset(g)
	m.showGroups(now)
	return cluster.Answer{Group: now}
}

// reset begins another reset epoch. The lives of all members are over with that, and the
// assignments of what they own: a leader that comes later knows leases of before from those
// of after by whose they are. A member that joins again has what it had.
func (m *Machine) reset(g *group) *cluster.Group {
	now := m.edit(g)
	now.Reset++
	now.Members, now.Owners = slices.Clone(now.Members), slices.Clone(now.Owners)
	for i := range now.Members {
		now.Members[i].Epoch = ident.MemberEpoch(m.view.Index)
	}
	for i := range now.Owners {
		if now.Owners[i].Member != "" {
			now.Owners[i].Epoch = ident.Assignment(m.view.Index)
		}
	}
	return now
}

// edit gives a copy of what is shown of a group, to be changed and shown. The slices in
// it are shared: they are replaced, never written into.
func (m *Machine) edit(g *group) *cluster.Group {
	now := *g.shown
	now.Modified = m.view.Index
	g.shown = &now
	return &now
}

// showGroups puts changed groups on the feed.
func (m *Machine) showGroups(groups ...*cluster.Group) {
	if len(groups) == 0 {
		return
	}
	m.ownGroups()
	of := map[ident.TopicID][]*cluster.Group{}
	for _, g := range groups {
		of[g.Topic] = append(of[g.Topic], g)
	}
	for topic, all := range of { // in any order: what comes of it is the same
		m.view.Groups[topic] = m.view.Groups[topic].With(all...)
	}
}

func (m *Machine) ownGroups() {
	if m.shared.groups {
		m.view.Groups = maps.Clone(m.view.Groups)
		m.shared.groups = false
	}
}

// ownProgress makes sure that no capture shares the progress of a group.
func (m *Machine) ownProgress(g *group) {
	if g.captures != m.captures {
		g.progress = slices.Clone(g.progress)
		g.captures = m.captures
	}
}

// weigh stores the progress on one partition.
func (m *Machine) weigh(g *group, p *cluster.Progress, now cluster.Progress) {
	more := weight(&now) - weight(p)
	*p = now
	g.weight += more
	m.weight += more
}

// addGroup counts a group in.
func (m *Machine) addGroup(g *group) {
	g.weight = 0
	for i := range g.progress {
		g.weight += weight(&g.progress[i])
	}
	m.groups[g.shown.ID] = g
	m.weight += g.weight
	m.members += len(g.shown.Members)
	m.groupPartitions += len(g.progress)
}

// forgetGroup counts a group out.
func (m *Machine) forgetGroup(g *group) {
	delete(m.groups, g.shown.ID)
	m.weight -= g.weight
	m.members -= len(g.shown.Members)
	m.groupPartitions -= len(g.progress)
}

// forgetGroupsOf ends the groups of a topic that goes.
func (m *Machine) forgetGroupsOf(topic ident.TopicID) {
	t := m.view.Groups[topic]
	if t == nil {
		return
	}
	for g := range t.All() {
		m.forgetGroup(m.groups[g.ID])
	}
	m.ownGroups()
	delete(m.view.Groups, topic)
}

func (m *Machine) checkGroupRoom(partitions int) *cluster.Refusal {
	full := func(format string, args ...any) *cluster.Refusal {
		return refuse(fault.Limit, fmt.Sprintf(format, args...)+"; delete groups that nobody uses any more (tidewire group delete)")
	}
	switch {
	case len(m.groups) >= cluster.MaxGroups:
		return full("the cluster holds %d groups, as many as it may", len(m.groups))
	case m.groupPartitions+partitions > cluster.MaxGroupPartitions:
		return full("the groups of the cluster have %d partitions to keep account of and may have %d: there is no room for %d more", m.groupPartitions, cluster.MaxGroupPartitions, partitions)
	case m.weight >= MaxProgressBytes:
		return full("what the groups of the cluster have done takes %d MiB of memory, as much as it may", m.weight>>20)
	}
	return nil
}

// checkStarts checks that positions are of partitions of a topic, each named once.
func checkStarts(t *cluster.Topic, starts []cluster.Position) *cluster.Refusal {
	wrong := func(format string, args ...any) *cluster.Refusal {
		r := refuse(fault.Invalid, fmt.Sprintf(format, args...))
		r.Field = "starts"
		return r
	}
	seen := make(map[ident.Index]bool, len(starts))
	for _, s := range starts {
		p, ok := t.Partition(s.Partition)
		if !ok {
			return wrong("topic %s has no partition %d", t.Name, s.Partition)
		}
		if s.Epoch != 0 && s.Epoch < p.Unclean {
			return refuse(fault.LeaderUnavailable, fmt.Sprintf("partition %d of topic %s has lost records since offset %d was found there; try again", s.Partition, t.Name, s.Offset))
		}
		if seen[s.Partition] {
			return wrong("partition %d is named twice", s.Partition)
		}
		if s.Offset < 0 || s.Offset >= maxOffset {
			return wrong("offset %d of partition %d is none; offsets count from 0", s.Offset, s.Partition)
		}
		seen[s.Partition] = true
	}
	return nil
}

func checkGroup(name string, p *cluster.GroupPatch) *cluster.Refusal {
	if err := ident.CheckGroupName(name); err != nil {
		kind := fault.Invalid
		if errors.Is(err, ident.ErrReserved) {
			kind = fault.ReservedName
		}
		r := refuse(kind, "group: "+err.Error())
		r.Field = "group"
		return r
	}
	return checkGroupPatch(p)
}

func existingGroup(t *cluster.Topic, g *cluster.Group, p *cluster.GroupPatch) cluster.Answer {
	names, texts := groupDifferences(g, p)
	if len(names) == 0 {
		return cluster.Answer{Group: g}
	}
	r := refuse(fault.GroupExists, fmt.Sprintf("group %s of topic %s exists with other settings: %s", g.Name, t.Name, strings.Join(texts, "; ")))
	r.Differs = names
	return cluster.Answer{Refusal: r}
}

func noGroup() *cluster.Refusal {
	return refuse(fault.GroupNotFound, "the group is not there, or not any more; register it first")
}

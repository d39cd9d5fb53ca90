package state

import (
	"cmp"
	"fmt"
	"slices"

	"tidewire/coordinator/assign"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// memberJoin begins a life of a member. One that comes back under its id keeps what it
// owns, and all that the former life held is fenced by new assignment epochs.
func (m *Machine) memberJoin(c *cluster.MemberJoin) cluster.Answer {
	g := m.groups[c.Group]
	if g == nil {
		return cluster.Answer{Refusal: noGroup()}
	}
	if err := ident.CheckMember(c.Member); err != nil {
		r := refuse(fault.Invalid, "member: "+err.Error())
		r.Field = "member"
		return cluster.Answer{Refusal: r}
	}
	epoch := ident.MemberEpoch(m.view.Index)
	member := cluster.Member{ID: c.Member, Epoch: epoch, Node: c.Node, Since: m.time()}
	i, known := slices.BinarySearchFunc(g.shown.Members, c.Member, byID)
	if !known {
		if r := m.checkMemberRoom(g.shown); r != nil {
			return cluster.Answer{Refusal: r}
		}
		now := m.edit(g)
		now.Members = slices.Insert(slices.Clone(now.Members), i, member)
		m.members++
		m.reassign(now, nil)
		m.showGroups(now)
		return cluster.Answer{Group: now, Member: epoch}
	}
	now := m.edit(g)
	member.Since = now.Members[i].Since
	now.Members = slices.Clone(now.Members)
	now.Members[i] = member
	now.Owners = slices.Clone(now.Owners)
	for k := range now.Owners {
		if now.Owners[k].Member == c.Member {
			now.Owners[k].Epoch = ident.Assignment(m.view.Index)
		}
	}
	m.showGroups(now)
	return cluster.Answer{Group: now, Member: epoch}
}

func byID(m cluster.Member, id string) int { return cmp.Compare(m.ID, id) }

// memberLeave ends a life that has let go of all it had.
func (m *Machine) memberLeave(c *cluster.MemberLeave) cluster.Answer {
	g := m.groups[c.Group]
	if g == nil {
		return cluster.Answer{Refusal: noGroup()}
	}
	if !lives(g.shown, &c.MemberLife) {
		return cluster.Answer{Refusal: refuse(fault.Fenced, fmt.Sprintf("epoch %d of member %s of group %s is over or unknown; to take part again, join again", c.Epoch, clip(c.Member), g.shown.Name))}
	}
	now := m.edit(g)
	m.part(now, map[string]bool{c.Member: true})
	m.reassign(now, nil)
	m.showGroups(now)
	return cluster.Answer{}
}

// memberLapse ends lives whose sessions are over. What they hold they may go on working
// on, and say nothing.
func (m *Machine) memberLapse(c *cluster.MemberLapse) cluster.Answer {
	if r := tooMany("lives of members", len(c.Lives), cluster.MaxLapse); r != nil {
		return cluster.Answer{Refusal: r}
	}
	gone := map[ident.GroupID]map[string]bool{} // only ever asked, never gone through
	var groups []*group
	for i := range c.Lives {
		l := &c.Lives[i]
		g := m.groups[l.Group]
		if g == nil || !lives(g.shown, l) {
			continue
		}
		if gone[l.Group] == nil {
			groups = append(groups, g)
			gone[l.Group] = map[string]bool{}
		}
		gone[l.Group][l.Member] = true
	}
	var changed []*cluster.Group
	for _, g := range groups {
		now := m.edit(g)
		m.part(now, gone[now.ID])
		m.reassign(now, gone[now.ID])
		changed = append(changed, now)
	}
	m.showGroups(changed...)
	return cluster.Answer{}
}

func lives(g *cluster.Group, l *cluster.MemberLife) bool {
	i, ok := slices.BinarySearchFunc(g.Members, l.Member, byID)
	return ok && g.Members[i].Epoch == l.Epoch
}

// part takes members out of a group that is being edited.
func (m *Machine) part(g *cluster.Group, gone map[string]bool) {
	var stay []cluster.Member
	for _, member := range g.Members {
		if !gone[member.ID] {
			stay = append(stay, member)
		}
	}
	m.members -= len(g.Members) - len(stay)
	g.Members = stay
}

// reassign gives the partitions of a group that is being edited to the members it has now.
// What an owner has to give up it keeps until it is released; what nobody owns changes
// hands at once, with a new assignment epoch. silent are those who went without a word.
func (m *Machine) reassign(g *cluster.Group, silent map[string]bool) {
	if g.Settings.Mode != cluster.Exclusive {
		return
	}
	members := make([]string, len(g.Members))
	for i := range g.Members {
		members[i] = g.Members[i].ID
	}
	of := make([]assign.Partition, len(g.Owners))
	for i, o := range g.Owners {
		of[i] = assign.Partition{Owner: o.Member, Next: o.Next}
	}
	g.Owners = slices.Clone(g.Owners)
	for i, to := range assign.Spread(of, members) {
		o := &g.Owners[i]
		_, there := slices.BinarySearch(members, o.Member)
		switch {
		case there && to == o.Member:
			o.Next, o.Notice = "", 0
		case there:
			if o.Next == "" {
				o.Notice = m.view.Index
			}
			o.Next = to
		case to != o.Member: // its owner has gone, or it had none
			// Who lets go speaks for itself: leases of one before it, who fell
			// silent, may be in hand still.
			o.Released = o.Released && !silent[o.Member]
			o.Member, o.Epoch = to, ident.Assignment(m.view.Index)
			o.Next, o.Notice = "", 0
		}
	}
}

// release hands over partitions whose owners have let go of them.
func (m *Machine) release(c *cluster.Release) cluster.Answer {
	if r := tooMany("partitions of a release", len(c.Of), cluster.MaxRelease); r != nil {
		return cluster.Answer{Refusal: r}
	}
	taken := make([]bool, len(c.Of))
	edited := map[ident.GroupID]*cluster.Group{}
	var changed []*cluster.Group
	for i := range c.Of {
		of := &c.Of[i]
		g := m.groups[of.Group]
		if g == nil {
			continue
		}
		o := g.shown.Owner(of.Partition)
		if o == nil || o.Next == "" || o.Epoch != of.Epoch || o.Notice != of.Notice {
			continue
		}
		now := edited[of.Group]
		if now == nil {
			now = m.edit(g)
			now.Owners = slices.Clone(now.Owners)
			edited[of.Group] = now
			changed = append(changed, now)
			o = now.Owner(of.Partition)
		}
		*o = cluster.Owner{Partition: o.Partition, Member: o.Next, Epoch: ident.Assignment(m.view.Index), Released: o.Released || of.Drained}
		taken[i] = true
	}
	m.showGroups(changed...)
	return cluster.Answer{Taken: taken}
}

func (m *Machine) checkMemberRoom(g *cluster.Group) *cluster.Refusal {
	if n := len(g.Members); n >= cluster.MaxGroupMembers {
		return refuse(fault.Limit, fmt.Sprintf("group %s has %d members, as many as it may; more work on a partition is done by more records in flight, not by more members", g.Name, n))
	}
	if m.members >= cluster.MaxMembers {
		return refuse(fault.Limit, fmt.Sprintf("the groups of the cluster have %d members, as many as they may; stop some that have little to do", m.members))
	}
	return nil
}

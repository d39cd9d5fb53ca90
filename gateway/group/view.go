package group

import (
	"slices"
	"time"

	"tidewire/gateway/topology"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// View is one group of a topic, by one snapshot.
type View struct {
	Index uint64 // of the snapshot
	Topic *cluster.Topic
	Group *cluster.Group
}

// Find finds a group by the names that clients use.
func Find(s *cluster.Snapshot, topic, name string) (View, error) {
	t, ok := s.Topic(topic)
	if !ok {
		return View{}, topology.NotFound(topic)
	}
	g := s.Groups[t.ID].Get(name)
	if g == nil {
		return View{}, NotFound(topic, name)
	}
	return View{s.Index, t, g}, nil
}

// NotFound is the error for a group that does not exist.
func NotFound(topic, name string) error {
	return fault.New(fault.GroupNotFound, "topic %q has no group %q; register it with POST /groups/%s/register {\"group\":…}", topic, clip(name), topic).
		With("topic", topic).With("group", clip(name))
}

// Of finds a group again that was found before. One that was deleted, and its topic, are
// as good as never there, whatever has their names now.
func Of(s *cluster.Snapshot, former View) (View, error) {
	t := s.ByID[former.Topic.ID]
	if t == nil {
		return View{}, topology.NotFound(former.Topic.Name)
	}
	g := s.Groups[t.ID].Get(former.Group.Name)
	if g == nil || g.ID != former.Group.ID {
		return View{}, NotFound(t.Name, former.Group.Name)
	}
	return View{s.Index, t, g}, nil
}

// Life finds a member in the life that a client names. A life that the snapshot does not
// know is over, unless it is one that the snapshot is too old for: that is the caller's
// affair.
func (v View) Life(member string, epoch ident.MemberEpoch) (*cluster.Member, error) {
	m, ok := v.Group.Member(member)
	switch {
	case !ok:
		return nil, fault.New(fault.Fenced, "member %q is no member of group %q any more: its session has ended, or it left; join again", clip(member), v.Group.Name).With("member", clip(member))
	case m.Epoch != epoch:
		return nil, fault.New(fault.Fenced, "member %q of group %q has another epoch than %d: it has joined again, and only its latest life counts", clip(member), v.Group.Name, epoch).With("member", clip(member))
	}
	return m, nil
}

// Fits says whether a group has all the settings that are given.
func Fits(g *cluster.Group, p *cluster.GroupPatch) bool {
	s := &g.Settings
	return same(p.Mode, s.Mode) && same(p.Lease, s.Lease) && same(p.Session, s.Session) && same(p.MaxDeliveries, s.MaxDeliveries) &&
		same(p.Backoff, s.Backoff) && same(p.DeadLetter, s.DeadLetter) && same(p.MaxInFlight, s.MaxInFlight)
}

func same[T comparable](given *T, is T) bool { return given == nil || *given == is }

// Assignment is which partitions a member has: Held are its own, and Revoked are those it
// has to give up, of which it gets nothing new.
type Assignment struct{ Held, Revoked []ident.Index }

// Assigned says what a member has. In shared mode that is every partition.
func (v View) Assigned(member string) (a Assignment) {
	if v.Group.Settings.Mode == cluster.Shared {
		for i := range v.Topic.Partitions {
			a.Held = append(a.Held, v.Topic.Partitions[i].Index)
		}
		return a
	}
	for i := range v.Group.Owners {
		switch o := &v.Group.Owners[i]; {
		case o.Member != member:
		case o.Next != "":
			a.Revoked = append(a.Revoked, o.Partition)
		default:
			a.Held = append(a.Held, o.Partition)
		}
	}
	return a
}

// All is what it has, of its own or not, ascending.
func (a Assignment) All() []ident.Index {
	return slices.Sorted(slices.Values(slices.Concat(a.Held, a.Revoked)))
}

// Changes says what a member has gained, and what it has no longer as its own, since an
// earlier assignment.
func (a Assignment) Changes(before Assignment) (gained, lost []ident.Index) {
	return missing(a.Held, before.Held), missing(before.Held, a.Held)
}

// missing is what is in list and not in other.
func missing(list, other []ident.Index) (out []ident.Index) {
	for _, i := range list {
		if !slices.Contains(other, i) {
			out = append(out, i)
		}
	}
	return out
}

// Given are the partitions that a member gives up by leaving them out of what it holds,
// each in the ownership that it gives up.
func (v View) Given(member string, holds []ident.Index) (out []cluster.ReleaseOf) {
	for i := range v.Group.Owners {
		o := &v.Group.Owners[i]
		if o.Member == member && o.Next != "" && !slices.Contains(holds, o.Partition) {
			out = append(out, cluster.ReleaseOf{Group: v.Group.ID, Partition: o.Partition, Epoch: o.Epoch, Notice: o.Notice})
		}
	}
	return out
}

// Leaders sorts partitions by the node that leads them; those that nobody leads, or that
// the topic does not have, are under the zero id.
func Leaders(t *cluster.Topic, of []ident.Index) map[ident.NodeID][]ident.Partition {
	out := map[ident.NodeID][]ident.Partition{}
	for _, i := range of {
		var leader ident.NodeID
		if p, ok := t.Partition(i); ok {
			leader = p.Leader
		}
		out[leader] = append(out[leader], t.Ref(i))
	}
	return out
}

// All are the partitions of a topic.
func All(t *cluster.Topic) []ident.Index {
	out := make([]ident.Index, len(t.Partitions))
	for i := range t.Partitions {
		out[i] = t.Partitions[i].Index
	}
	return out
}

const (
	heartbeatStep  = 100 * time.Millisecond
	leastHeartbeat = 300 * time.Millisecond
)

// Heartbeat is how often a member is to be heard: three times a session, rounded down to
// whole seconds, or to tenths where there is less than one.
func Heartbeat(session time.Duration) time.Duration {
	every := session / 3
	if every >= time.Second {
		return every.Truncate(time.Second)
	}
	return max(every.Truncate(heartbeatStep), leastHeartbeat)
}

func clip(s string) string {
	if len(s) > ident.MaxNameBytes {
		return s[:ident.MaxNameBytes] + "…"
	}
	return s
}

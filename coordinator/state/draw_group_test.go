package state_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// groupKinds are the changes of groups likewise.
func groupKinds() []string {
	return weighted(map[string]int{
		"group-register": 4, "group-alter": 1, "group-delete": 1, "group-reset": 2,
		"member-join": 8, "member-leave": 2, "member-lapse": 2, "release": 8, "commit": 20, "clamp": 3,
	})
}

// groupChange makes a change that often hits something of what there is.
func (d *drawer) groupChange(kind string, n byte) (c cluster.Change) {
	g := d.group()
	switch kind {
	case "group-register":
		c.GroupRegister = d.groupRegister(n)
	case "group-alter":
		c.GroupAlter = &cluster.GroupAlter{Group: g.ID, Patch: d.groupPatch()}
	case "group-delete":
		c.GroupDelete = &cluster.GroupDelete{Group: g.ID}
	case "group-reset":
		c.GroupReset = &cluster.GroupReset{Group: g.ID, Force: rapid.Bool().Draw(d.t, "force")}
		for _, p := range d.partitionsOf(g.Topic) {
			if rapid.IntRange(0, 3).Draw(d.t, "moved") > 0 {
				c.GroupReset.Starts = append(c.GroupReset.Starts, cluster.Position{Partition: p.Index, Offset: d.offset()})
			}
		}
	case "member-join":
		c.MemberJoin = &cluster.MemberJoin{Group: g.ID, Member: d.member(), Node: d.node()}
	case "member-leave":
		c.MemberLeave = &cluster.MemberLeave{MemberLife: d.memberLife(g)}
	case "member-lapse":
		c.MemberLapse = &cluster.MemberLapse{}
		for range rapid.IntRange(1, 3).Draw(d.t, "lives") {
			c.MemberLapse.Lives = append(c.MemberLapse.Lives, d.memberLife(d.group()))
		}
	case "release":
		c.Release = &cluster.Release{}
		if going := slices.DeleteFunc(allGroups(d.s), func(g *cluster.Group) bool {
			return !slices.ContainsFunc(g.Owners, func(o cluster.Owner) bool { return o.Next != "" })
		}); len(going) > 0 {
			g = rapid.SampledFrom(going).Draw(d.t, "going")
		}
		for _, o := range g.Owners {
			if o.Next != "" || rapid.IntRange(0, 5).Draw(d.t, "stays") == 0 {
				o.Epoch -= ident.Assignment(rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(d.t, "late"))
				o.Notice -= uint64(rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(d.t, "of a notice before"))
				c.Release.Of = append(c.Release.Of, cluster.ReleaseOf{Group: g.ID, Partition: o.Partition, Epoch: o.Epoch, Notice: o.Notice, Drained: rapid.Bool().Draw(d.t, "drained")})
			}
		}
	case "clamp":
		c.Clamp = d.clamp()
	default:
		c.Commit = d.commit()
	}
	return c
}

// group is one that is there, or, now and then, none.
func (d *drawer) group() *cluster.Group {
	all := allGroups(d.s)
	return rapid.SampledFrom(append(all, &cluster.Group{ID: ident.GroupID{99}})).Draw(d.t, "group")
}

func allGroups(s *cluster.Snapshot) (all []*cluster.Group) {
	for _, t := range s.Groups {
		all = slices.AppendSeq(all, t.All())
	}
	slices.SortFunc(all, func(a, b *cluster.Group) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return all
}

func (d *drawer) partitionsOf(id ident.TopicID) []cluster.Partition {
	if t := d.s.ByID[id]; t != nil {
		return t.Partitions
	}
	return nil
}

func (d *drawer) offset() ident.Offset {
	return ident.Offset(rapid.SampledFrom([]int{0, 1, 2, 3, 5, 8, 12, 20, -1, 1 << 40}).Draw(d.t, "offset"))
}

func (d *drawer) member() string {
	return rapid.SampledFrom([]string{"m", "n", "o", "p", "q", "~", "no body"}).Draw(d.t, "member")
}

// memberLife is mostly one that is there.
func (d *drawer) memberLife(g *cluster.Group) cluster.MemberLife {
	l := cluster.MemberLife{Group: g.ID, Member: d.member(), Epoch: 3}
	if len(g.Members) > 0 && rapid.IntRange(0, 9).Draw(d.t, "there") > 0 {
		m := rapid.SampledFrom(g.Members).Draw(d.t, "of them")
		l.Member, l.Epoch = m.ID, m.Epoch
	}
	return l
}

func (d *drawer) groupRegister(n byte) *cluster.GroupRegister {
	r := &cluster.GroupRegister{ID: ident.GroupID{n}, Topic: d.partition().Topic, Name: rapid.SampledFrom([]string{"g", "h", "i", "node"}).Draw(d.t, "group name"), Patch: d.groupPatch()}
	if rapid.Bool().Draw(d.t, "shared") {
		r.Patch.Mode = new(cluster.Shared)
	}
	for _, p := range d.partitionsOf(r.Topic) {
		r.Starts = append(r.Starts, cluster.Position{Partition: p.Index, Offset: max(d.offset(), 0)})
	}
	if odd := rapid.IntRange(0, 15).Draw(d.t, "odd"); odd < len(r.Starts) {
		r.Starts[odd].Partition = ident.Index(odd / 2) // one twice, or as it is
	}
	return r
}

func (d *drawer) groupPatch() (p cluster.GroupPatch) {
	if rapid.IntRange(0, 3).Draw(d.t, "lease") == 0 {
		p.Lease = new(rapid.SampledFrom([]time.Duration{time.Minute, 1}).Draw(d.t, "lease"))
	}
	if rapid.IntRange(0, 5).Draw(d.t, "dead letter") == 0 {
		p.DeadLetter = new(rapid.SampledFrom([]string{"grave", "b", "_x"}).Draw(d.t, "dead letter"))
	}
	return p
}

// commit is mostly one that the leader of a partition might send, of any of its groups.
// clamp is of partitions that are to be clamped mostly, and of others.
func (d *drawer) clamp() *cluster.Clamp {
	c := &cluster.Clamp{Leader: d.life()}
	for _, name := range slices.Sorted(maps.Keys(d.s.Topics)) {
		t := d.s.Topics[name]
		for _, p := range t.Partitions {
			n := d.s.Nodes[p.Leader]
			if n == nil || len(c.Of) > 0 && c.Leader.Node != p.Leader || p.Unclamped == 0 && rapid.IntRange(0, 9).Draw(d.t, "clamped") > 0 {
				continue
			}
			c.Leader = n.Life()
			late := ident.Epoch(rapid.SampledFrom([]int{0, 0, 0, 0, 1}).Draw(d.t, "late"))
			c.Of = append(c.Of, cluster.ClampOf{Partition: t.Ref(p.Index), Epoch: p.LeaderEpoch - late, End: d.offset()})
		}
	}
	return c
}

func (d *drawer) commit() *cluster.Commit {
	g := d.group()
	c := &cluster.Commit{Leader: d.life()}
	for _, p := range d.partitionsOf(g.Topic) {
		if n := d.s.Nodes[p.Leader]; n != nil && (c.Leader.Node == p.Leader || len(c.Of) == 0) {
			c.Leader = n.Life()
			c.Of = append(c.Of, d.commitOf(g, &p))
		}
	}
	return c
}

func (d *drawer) commitOf(g *cluster.Group, p *cluster.Partition) cluster.CommitOf {
	late := func(what string) int { return rapid.SampledFrom([]int{0, 0, 0, 0, 0, 0, 0, 0, 0, 1}).Draw(d.t, what) }
	c := cluster.CommitOf{Group: g.ID, Partition: p.Index, Leader: p.LeaderEpoch - ident.Epoch(late("leader")), Reset: g.Reset - uint64(late("reset"))}
	spoken := rapid.IntRange(0, 3).Draw(d.t, "somebody's") > 0
	if o := g.Owner(p.Index); o != nil && spoken {
		c.Assignment = o.Epoch - ident.Assignment(late("assignment"))
	}
	if g.Settings.Mode == cluster.Shared && spoken {
		l := d.memberLife(g)
		c.Member, c.Epoch = l.Member, l.Epoch
	}
	offsets := func(what string, most int) (all []ident.Offset) {
		for range rapid.IntRange(0, most).Draw(d.t, what) {
			all = append(all, ident.Offset(rapid.IntRange(0, 30).Draw(d.t, what)))
		}
		return all
	}
	for _, o := range offsets("done", 4) {
		c.Done = append(c.Done, cluster.Span{From: o, To: o + ident.Offset(rapid.SampledFrom([]int{1, 1, 1, 3, 9}).Draw(d.t, "so many"))})
	}
	for _, o := range offsets("counts", 2) {
		c.Counts = append(c.Counts, cluster.Count{Offset: o, Deliveries: rapid.IntRange(1, 4).Draw(d.t, "deliveries")})
	}
	at := int64(0)
	if got := d.progress(p.Index, g); got != nil {
		at = got.Sequence
		for _, i := range got.Intents {
			if rapid.Bool().Draw(d.t, "published") {
				c.Published = append(c.Published, i.Offset)
			}
		}
	}
	for _, o := range offsets("intents", 1) {
		c.Intents = append(c.Intents, cluster.Intent{Offset: o, Sequence: at + int64(late("gap")) - int64(late("again")), Deliveries: 5, Reason: fmt.Sprint("r", o)})
	}
	if rapid.IntRange(0, 5).Draw(d.t, "start") == 0 {
		c.Start = d.offset()
	}
	return c
}

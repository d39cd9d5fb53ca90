package state_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"tidewire/coordinator/state"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// drawCommand makes a command that often hits something of what there is.
func drawCommand(t *rapid.T, m *state.Machine, n byte, kinds []string) *state.Command {
	s := m.Snapshot()
	c := &state.Command{
		Request: state.RequestID{1, rapid.SampledFrom([]byte{n, n, n, n, n, n / 2}).Draw(t, "request")}, // some are retries
		Time:    rapid.Int64Range(0, 1<<40).Draw(t, "time"),
	}
	d := &drawer{t, s, m}
	name := rapid.SampledFrom([]string{"a", "b", "b", "c", "_d", ""}).Draw(t, "name")
	switch kind := rapid.SampledFrom(kinds).Draw(t, "kind"); kind {
	case "found":
		c.Found = &state.Found{Cluster: ident.ClusterID{n}}
	case "register":
		c.Register = d.register(n)
	case "activate":
		l := d.life()
		c.Activate = &cluster.Activate{Node: l.Node, Epoch: l.Epoch}
	case "expire":
		c.Expire = &cluster.Expire{Lives: rapid.SliceOfN(rapid.Custom(func(*rapid.T) cluster.Life { return d.life() }), 1, 3).Draw(t, "lives")}
	case "insync":
		c.Insync = d.insync()
	case "unfit":
		c.Unfit = &cluster.Unfit{Life: d.life(), Partitions: []ident.Partition{d.partition()}}
	case "elect":
		ref := d.partition()
		o := cluster.ElectOf{Partition: ref, Version: d.version(ref), Leader: d.node(), Takeover: rapid.Bool().Draw(t, "takeover")}
		if n := d.s.Nodes[o.Leader]; n != nil && rapid.Bool().Draw(t, "unclean") {
			o.Unclean = n.BrokerEpoch
		}
		c.Elect = &cluster.Elect{Of: []cluster.ElectOf{o}}
	case "move":
		o := d.move()
		c.Move = &cluster.Move{Of: []cluster.MoveOf{o}}
	case "drain":
		c.Drain = &cluster.Drain{Node: d.node(), Cancel: rapid.Bool().Draw(t, "cancel")}
	case "retire":
		c.Retire = &cluster.Retire{Node: d.node()}
	case "create":
		c.Create = &cluster.Create{ID: ident.TopicID{n}, Spec: cluster.TopicSpec{Name: name, Partitions: d.opt("partitions", 0, 1, 3, 7), SettingsPatch: d.patch()}}
	case "alter":
		c.Alter = &cluster.Alter{Name: name, Patch: d.patch()}
	case "purge":
		ref := d.partition()
		late := ident.Epoch(rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "late"))
		c.Purge = &cluster.Purge{Of: []cluster.PurgeOf{{Partition: ref, Epoch: d.find(ref).LeaderEpoch - late, Before: d.offset()}}}
	case "delete":
		c.Delete = &cluster.Delete{Name: name}
	default:
		c.Change = d.groupChange(kind, n)
	}
	return c
}

// clusterKinds are the changes of topics and nodes, each as often as it is drawn.
func clusterKinds() []string {
	return weighted(map[string]int{
		"found": 1, "register": 5, "activate": 7, "expire": 4, "insync": 10, "unfit": 1, "elect": 3,
		"move": 4, "drain": 1, "retire": 1, "create": 4, "alter": 3, "delete": 1, "purge": 2,
	})
}

func weighted(of map[string]int) (all []string) {
	for kind, weight := range of {
		all = append(all, slices.Repeat([]string{kind}, weight)...)
	}
	slices.Sort(all)
	return all
}

type drawer struct {
	t *rapid.T
	s *cluster.Snapshot
	m *state.Machine
}

// progress is what a group has done on a partition; nil: there is none.
func (d *drawer) progress(p ident.Index, g *cluster.Group) *cluster.GroupProgress {
	got := d.m.Progress(ident.Partition{Topic: g.Topic, Index: p}, []ident.GroupID{g.ID})
	if len(got) == 0 {
		return nil
	}
	return &got[0]
}

// move is mostly one that can be, also beside one under way.
func (d *drawer) move() cluster.MoveOf {
	ref := d.partition()
	if all := d.moving(); len(all) > 0 && rapid.Bool().Draw(d.t, "under way") {
		ref = rapid.SampledFrom(all).Draw(d.t, "moves")
	}
	o := cluster.MoveOf{Partition: ref, Version: d.version(ref)}
	switch rapid.IntRange(0, 6).Draw(d.t, "cancel") {
	case 0:
	case 1:
		o.First = d.node()
	case 2:
		o.Add, o.Remove = []ident.NodeID{d.node()}, []ident.NodeID{d.node()}
	default:
		p := d.find(ref)
		var stay, free []ident.NodeID
		for _, n := range []ident.NodeID{{1}, {2}, {3}, {4}, {5}} {
			known := d.s.Nodes[n]
			switch stays := slices.Contains(p.Replicas, n) && !slices.Contains(p.Removing, n); {
			case !stays:
				free = append(free, n)
			case len(p.Adding) == 0 || known == nil || known.Over():
				stay = append(stay, n)
			}
		}
		if len(free) > 0 {
			o.Add = []ident.NodeID{rapid.SampledFrom(free).Draw(d.t, "add")}
		}
		if len(stay) > 0 && rapid.IntRange(0, 5).Draw(d.t, "in place") > 0 {
			o.Remove = []ident.NodeID{rapid.SampledFrom(stay).Draw(d.t, "remove")}
		}
	}
	return o
}

// moving lists the partitions that move.
func (d *drawer) moving() (all []ident.Partition) {
	for _, name := range slices.Sorted(maps.Keys(d.s.Topics)) {
		t := d.s.Topics[name]
		for k := range t.Partitions {
			if len(t.Partitions[k].Adding) > 0 {
				all = append(all, t.Ref(t.Partitions[k].Index))
			}
		}
	}
	return all
}

func (d *drawer) opt(label string, of ...int) *int {
	if v := rapid.SampledFrom(append(of, -1)).Draw(d.t, label); v >= 0 {
		return &v
	}
	return nil
}

func (d *drawer) patch() cluster.SettingsPatch {
	p := cluster.SettingsPatch{Replicas: d.opt("replicas", 0, 1, 2, 3, 4), MinInsync: d.opt("min_insync", 1, 2, 3)}
	if rapid.IntRange(0, 3).Draw(d.t, "age") == 0 {
		p.RetentionAge = new(rapid.SampledFrom([]time.Duration{0, time.Hour, 1}).Draw(d.t, "retention"))
	}
	if rapid.IntRange(0, 5).Draw(d.t, "unclean") == 0 {
		p.Unclean = new(rapid.Bool().Draw(d.t, "unclean"))
	}
	if rapid.IntRange(0, 5).Draw(d.t, "durability") == 0 {
		p.Durability = new(rapid.SampledFrom([]cluster.Durability{cluster.Fsync, cluster.Replicated}).Draw(d.t, "durability"))
	}
	return p
}

func (d *drawer) node() ident.NodeID { return ident.NodeID{rapid.ByteRange(1, 5).Draw(d.t, "node")} }

// life is mostly the latest one of a node.
func (d *drawer) life() cluster.Life {
	l := cluster.Life{Node: d.node(), Epoch: 3}
	if n := d.s.Nodes[l.Node]; n != nil && rapid.IntRange(0, 9).Draw(d.t, "latest") > 0 {
		l.Epoch = n.BrokerEpoch
	}
	return l
}

func (d *drawer) register(n byte) *cluster.Register {
	id := d.node()
	r := &cluster.Register{Node: cluster.Node{
		ID: id, Name: fmt.Sprint("n", id[0]), Zone: "z", Boot: "boot", Storage: ident.StorageID{id[0]}, Roles: []string{"broker"},
	}}
	if known := d.s.Nodes[id]; known != nil {
		r.Last = rapid.SampledFrom([]ident.BrokerEpoch{known.Activated, known.BrokerEpoch}).Draw(d.t, "last")
		r.Node.Storage, r.Node.Boot = known.Storage, known.Boot
	}
	switch rapid.IntRange(0, 20).Draw(d.t, "odd") {
	case 0:
		r.Node.Storage = ident.StorageID{id[0], n}
	case 1:
		r.Last = 1
	case 2:
		r.Node.Boot = fmt.Sprint("boot", n)
	case 3:
		r.Unfit = []ident.Partition{d.partition()}
	case 4:
		r.Node.Roles = []string{"gateway"}
	case 5:
		r.Node.Name = "n1"
	}
	return r
}

// partition names one that is there, or, now and then, one that is not.
func (d *drawer) partition() ident.Partition {
	var all []ident.Partition
	for _, t := range d.s.ByID {
		for k := range t.Partitions {
			all = append(all, t.Ref(t.Partitions[k].Index))
		}
	}
	slices.SortFunc(all, func(a, b ident.Partition) int { return bytes.Compare(fmt.Append(nil, a), fmt.Append(nil, b)) })
	return rapid.SampledFrom(append(all, ident.Partition{Topic: ident.TopicID{99}})).Draw(d.t, "partition")
}

func (d *drawer) find(ref ident.Partition) *cluster.Partition {
	if t := d.s.ByID[ref.Topic]; t != nil {
		if p, ok := t.Partition(ref.Index); ok {
			return p
		}
	}
	return &cluster.Partition{}
}

func (d *drawer) version(ref ident.Partition) uint64 {
	return d.find(ref).Version + rapid.SampledFrom([]uint64{0, 0, 0, 0, 0, 1}).Draw(d.t, "newer")
}

// insync is mostly one that the leader might send: any of the replicas, in the lives
// that they have.
func (d *drawer) insync() *cluster.Insync {
	ref := d.partition()
	p := d.find(ref)
	if refs := d.led(); len(refs) > 0 && rapid.IntRange(0, 5).Draw(d.t, "led") > 0 {
		ref = rapid.SampledFrom(refs).Draw(d.t, "partition")
		p = d.find(ref)
	}
	o := cluster.InsyncOf{Partition: ref, Epoch: p.LeaderEpoch, Version: d.version(ref)}
	for _, n := range p.Replicas {
		if n == p.Leader || rapid.IntRange(0, 3).Draw(d.t, "in sync") > 0 {
			l := cluster.Life{Node: n}
			if known := d.s.Nodes[n]; known != nil {
				l.Epoch = known.BrokerEpoch
			}
			o.ISR = append(o.ISR, l)
		}
	}
	if rapid.IntRange(0, 9).Draw(d.t, "odd") == 0 {
		o.ISR = append(o.ISR, d.life())
	}
	l := cluster.Life{Node: p.Leader}
	if n := d.s.Nodes[p.Leader]; n != nil {
		l.Epoch = n.BrokerEpoch
	}
	return &cluster.Insync{Leader: l, Of: []cluster.InsyncOf{o}}
}

// led lists the partitions that have a leader, topics by name, and those that move
// more often than others.
func (d *drawer) led() (refs []ident.Partition) {
	for _, name := range slices.Sorted(maps.Keys(d.s.Topics)) {
		t := d.s.Topics[name]
		for k := range t.Partitions {
			if t.Partitions[k].Leader != (ident.NodeID{}) {
				refs = append(refs, t.Ref(t.Partitions[k].Index))
				if len(t.Partitions[k].Adding) > 0 {
					refs = append(refs, slices.Repeat(refs[len(refs)-1:], 5)...)
				}
			}
		}
	}
	return refs
}

func mustEncode(t interface{ Fatal(...any) }, c *state.Command) []byte {
	b, err := state.Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

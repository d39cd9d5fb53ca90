package state_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"testing"
	"time"

	"tidewire/coordinator/state"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// with puts a right checksum around any JSON, so that the fuzzer gets past it.
func with(version byte, body []byte) []byte {
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(crc32.Checksum([]byte{version}, table), table, body)
	return append(binary.BigEndian.AppendUint32([]byte{version}, sum), body...)
}

// sample is a short life of a cluster in which every kind of change occurs.
func sample(t interface{ Fatal(...any) }) (*state.Machine, [][]byte) {
	one, two := ident.NodeID{1}, ident.NodeID{2}
	register := func(id ident.NodeID, last ident.BrokerEpoch, unfit ...ident.Partition) cluster.Change {
		return cluster.Change{Register: &cluster.Register{Last: last, Unfit: unfit, Node: cluster.Node{
			ID: id, Name: string('a' - 1 + rune(id[0])), Zone: "z", Roles: []string{"broker"}, Boot: "m",
			Version: "1", Storage: ident.StorageID{2}, Addresses: cluster.Addresses{HTTP: "h:1", RPC: "r:2", Raft: "f:3", Gossip: "g:4"},
		}}}
	}
	z, g, h := ident.TopicID{5}, ident.GroupID{6}, ident.GroupID{7}
	x := ident.Partition{Topic: ident.TopicID{3}, Index: 1}
	all := []*state.Command{
		{Found: &state.Found{Cluster: ident.ClusterID{1}}},
		{Time: 1700000000000, Change: register(one, 0)},
	}
	for _, c := range []cluster.Change{
		{Activate: &cluster.Activate{Node: one, Epoch: 2}},
		register(two, 0),
		{Activate: &cluster.Activate{Node: two, Epoch: 4}},
		{Create: &cluster.Create{ID: x.Topic, Spec: cluster.TopicSpec{Name: "x", Partitions: new(3)}}},
		{Create: &cluster.Create{ID: ident.TopicID{4}, Spec: cluster.TopicSpec{Name: "y", SettingsPatch: cluster.SettingsPatch{MinInsync: new(2)}}}},
		{Insync: &cluster.Insync{Leader: cluster.Life{Node: two, Epoch: 4}, Of: []cluster.InsyncOf{
			{Partition: x, Epoch: 1, Version: 1, ISR: []cluster.Life{{Node: two, Epoch: 4}}},
			{Partition: x, Epoch: 1, Version: 1, ISR: []cluster.Life{{Node: two, Epoch: 4}}},
		}}},
		{Expire: &cluster.Expire{Lives: []cluster.Life{{Node: two, Epoch: 4}}}},
		register(two, 4, x),
		{Unfit: &cluster.Unfit{Life: cluster.Life{Node: two, Epoch: 10}, Partitions: []ident.Partition{x}}},
		{Activate: &cluster.Activate{Node: two, Epoch: 10}},
		{Elect: &cluster.Elect{Of: []cluster.ElectOf{{Partition: ident.Partition{Topic: ident.TopicID{4}}, Version: 2, Leader: two, Takeover: true}}}},
		{Move: &cluster.Move{Of: []cluster.MoveOf{{Partition: ident.Partition{Topic: ident.TopicID{3}}, Version: 2, Remove: []ident.NodeID{two}}}}},
		{Alter: &cluster.Alter{Name: "x", Patch: cluster.SettingsPatch{Unclean: new(true)}}},
		{Drain: &cluster.Drain{Node: one}},
		{Delete: &cluster.Delete{Name: "y"}},
		{Delete: &cluster.Delete{Name: "x"}},
		{Expire: &cluster.Expire{Lives: []cluster.Life{{Node: two, Epoch: 10}}}},
		{Retire: &cluster.Retire{Node: two}},
		{Create: &cluster.Create{ID: ident.TopicID{5}, Spec: cluster.TopicSpec{Name: "z"}}},
		{Drain: &cluster.Drain{Node: one, Cancel: true}},
		{Create: &cluster.Create{ID: ident.TopicID{5}, Spec: cluster.TopicSpec{Name: "z"}}},
		// From here on at 24: groups of z, whose one partition is led by one in epoch 1.
		{GroupRegister: &cluster.GroupRegister{ID: g, Topic: z, Name: "g", Starts: []cluster.Position{{Partition: 0, Offset: 5}}}},
		{GroupRegister: &cluster.GroupRegister{ID: h, Topic: z, Name: "h", Patch: cluster.GroupPatch{Mode: new(cluster.Shared), Lease: new(time.Minute)}, Starts: []cluster.Position{{}}}},
		{MemberJoin: &cluster.MemberJoin{Group: g, Member: "m", Node: one}},
		{MemberJoin: &cluster.MemberJoin{Group: g, Member: "l", Node: one}},
		{MemberJoin: &cluster.MemberJoin{Group: h, Member: "s", Node: one}},
		{Commit: &cluster.Commit{Leader: cluster.Life{Node: one, Epoch: 2}, Of: []cluster.CommitOf{
			{Group: g, Leader: 1, Assignment: 26, Done: []cluster.Span{{From: 5, To: 7}, {From: 9, To: 10}}, Counts: []cluster.Count{{Offset: 8, Deliveries: 2}}},
			{Group: g, Leader: 1, Intents: []cluster.Intent{{Offset: 7, Deliveries: 5, Reason: "often"}, {Offset: 12, Sequence: 1}}},
			{Group: g, Leader: 1, Published: []ident.Offset{7}, Start: 2},
			{Group: h, Leader: 1, Member: "s", Epoch: 28, Done: []cluster.Span{{From: 1, To: 4}}},
			{Group: h, Leader: 1, Reset: 1, Member: "s", Epoch: 28, Done: []cluster.Span{{From: 7, To: 8}}},
		}}},
		{MemberJoin: &cluster.MemberJoin{Group: g, Member: "m", Node: one}},
		{Release: &cluster.Release{Of: []cluster.ReleaseOf{{Group: g, Epoch: 30, Drained: true}}}},
		{MemberLapse: &cluster.MemberLapse{Lives: []cluster.MemberLife{{Group: g, Member: "m", Epoch: 30}, {Group: h, Member: "s", Epoch: 1}}}},
		{MemberLeave: &cluster.MemberLeave{MemberLife: cluster.MemberLife{Group: g, Member: "l", Epoch: 27}}},
		{GroupAlter: &cluster.GroupAlter{Group: g, Patch: cluster.GroupPatch{Backoff: new(time.Duration(0))}}},
		{GroupReset: &cluster.GroupReset{Group: g, Starts: []cluster.Position{{Offset: 11}}}},
		{GroupRegister: &cluster.GroupRegister{ID: ident.GroupID{8}, Topic: z, Name: "i", Starts: []cluster.Position{{}}}},
		{GroupDelete: &cluster.GroupDelete{Group: ident.GroupID{8}}},
		{MemberJoin: &cluster.MemberJoin{Group: g, Member: "m", Node: one}},
		{Unfit: &cluster.Unfit{Life: cluster.Life{Node: one, Epoch: 2}, Partitions: []ident.Partition{{Topic: z}}}},
		{Clamp: &cluster.Clamp{Leader: cluster.Life{Node: one, Epoch: 2}, Of: []cluster.ClampOf{{Partition: ident.Partition{Topic: z}, Epoch: 1, End: 3}}}},
	} {
		all = append(all, &state.Command{Change: c})
	}
	m := state.New()
	var encoded [][]byte
	for i, c := range all {
		c.Request = state.RequestID{9, byte(i)}
		b, err := state.Encode(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Apply(uint64(i+1), b); err != nil {
			t.Fatal(err)
		}
		encoded = append(encoded, b)
	}
	return m, encoded
}

// FuzzApply feeds two machines the same bytes: neither may panic, both must
// answer alike and hold the same, and what they hold must come back from a snapshot.
func FuzzApply(f *testing.F) {
	_, all := sample(f)
	for _, b := range all {
		f.Add(b[5:], true)
		f.Add(b, false)
	}
	f.Fuzz(func(t *testing.T, b []byte, sum bool) {
		if sum {
			b = with(3, b)
		}
		one, _ := sample(t)
		two, _ := sample(t)
		for i := range uint64(2) {
			a, errA := one.Apply(100+i, b)
			c, errC := two.Apply(100+i, b)
			if (errA == nil) != (errC == nil) || !bytes.Equal(must(json.Marshal(a)), must(json.Marshal(c))) {
				t.Fatalf("%+v %v, %+v %v", a, errA, c, errC)
			}
		}
		x, y := encode(t, one), encode(t, two)
		if !bytes.Equal(x, y) {
			t.Fatal("the same command gave two states")
		}
		back, err := state.Restore(x)
		if err != nil || !bytes.Equal(encode(t, back), x) {
			t.Fatalf("the state does not come back: %v", err)
		}
	})
}

// FuzzRestore must not panic, and a machine it gives must work.
func FuzzRestore(f *testing.F) {
	m, all := sample(f)
	whole := encode(f, m)
	f.Add(whole[17:], true)
	f.Add(whole, false)
	f.Fuzz(func(t *testing.T, b []byte, sum bool) {
		if sum {
			head := binary.BigEndian.AppendUint64([]byte("TWST\x03"), uint64(len(b)))
			b = append(append(head, with(3, b)[1:5]...), b...)
		}
		m, err := state.Restore(b)
		if err != nil {
			return
		}
		for i, c := range all {
			if _, err := m.Apply(m.Index()+uint64(i)+1, c); err != nil && m.Index() < 1<<60 {
				t.Fatal(err)
			}
		}
		if _, err := m.Capture().WriteTo(&bytes.Buffer{}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAFlippedBitIsNeverApplied(t *testing.T) {
	m, all := sample(t)
	for _, b := range all {
		for i := range b {
			for bit := range 8 {
				c := bytes.Clone(b)
				c[i] ^= 1 << bit
				if _, err := state.Decode(c); err == nil {
					t.Fatalf("byte %d, bit %d of %q passed", i, bit, b)
				}
			}
		}
	}
	whole := encode(t, m)
	for i := range whole {
		c := bytes.Clone(whole)
		c[i] ^= 1 << (i % 8)
		if _, err := state.Restore(c); err == nil {
			t.Fatalf("byte %d of a snapshot passed", i)
		}
		if _, err := state.Restore(whole[:i]); err == nil {
			t.Fatalf("a snapshot cut to %d bytes passed", i)
		}
	}
}

// An entry that cannot be applied ends every coordinator for good.
func TestNothingIsEncodedThatWouldNotBeDecoded(t *testing.T) {
	for name, c := range map[string]*state.Command{
		"nothing": {},
		"two things": {Change: cluster.Change{
			Delete: &cluster.Delete{Name: "x"}, Retire: &cluster.Retire{Node: ident.NodeID{1}},
		}},
		"founding and a change": {Found: &state.Found{Cluster: ident.ClusterID{1}}, Change: cluster.Change{Delete: &cluster.Delete{Name: "x"}}},
	} {
		if b, err := state.Encode(c); err == nil {
			t.Errorf("%s was encoded: %q", name, b)
		}
	}
}

func TestANewerFormatIsRefused(t *testing.T) {
	for _, b := range [][]byte{
		with(4, []byte(`{"Delete":{"Name":"x"}}`)),
		with(0, []byte(`{"Delete":{"Name":"x"}}`)),
		with(3, []byte(`{"Delete":{"Name":"x"},"Later":1}`)),
		with(3, []byte(`{"Delete":{"Name":"x"},"Found":{}}`)),
		with(2, []byte(`{"Delete":{"Name":"x"},"Expire":{}}`)),
		with(1, []byte(`{}`)),
		with(1, []byte(`{"Delete":{"Name":"x"}} {}`)),
	} {
		if _, err := state.Decode(b); err == nil {
			t.Errorf("%q passed", b)
		}
	}
}

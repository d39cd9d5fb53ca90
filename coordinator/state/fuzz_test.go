package state_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"testing"

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

func sample(t interface{ Fatal(...any) }) (*state.Machine, [][]byte) {
	m := state.New()
	var all [][]byte
	three := 3
	for i, c := range []*state.Command{
		{Found: &state.Found{Cluster: ident.ClusterID{1}}},
		{Time: 1700000000000, Register: &state.Register{Node: cluster.Node{
			ID: ident.NodeID{1}, Name: "a", Zone: "z", Roles: []string{"broker"},
			Version: "1", Storage: ident.StorageID{2}, Addresses: cluster.Addresses{HTTP: "h:1", RPC: "r:2", Raft: "f:3", Gossip: "g:4"},
		}}},
		{Create: &state.Create{ID: ident.TopicID{3}, Spec: cluster.TopicSpec{Name: "x", Partitions: &three}}},
		{Create: &state.Create{ID: ident.TopicID{4}, Spec: cluster.TopicSpec{Name: "y"}}},
		{Alter: &state.Alter{Name: "x", Patch: cluster.SettingsPatch{Unclean: new(true)}}},
		{Delete: &state.Delete{Name: "y"}},
	} {
		c.Request = state.RequestID{9, byte(i)}
		b, err := state.Encode(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Apply(uint64(i+1), b); err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	return m, all
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
			b = with(1, b)
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
			head := binary.BigEndian.AppendUint64([]byte("TWST\x01"), uint64(len(b)))
			b = append(append(head, with(1, b)[1:5]...), b...)
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

func TestANewerFormatIsRefused(t *testing.T) {
	for _, b := range [][]byte{
		with(2, []byte(`{"Delete":{"Name":"x"}}`)),
		with(1, []byte(`{"Delete":{"Name":"x"},"Later":1}`)),
		with(1, []byte(`{"Delete":{"Name":"x"},"Found":{}}`)),
		with(1, []byte(`{}`)),
		with(1, []byte(`{"Delete":{"Name":"x"}} {}`)),
	} {
		if _, err := state.Decode(b); err == nil {
			t.Errorf("%q passed", b)
		}
	}
}

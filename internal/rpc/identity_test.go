package rpc

import (
	"testing"

	"google.golang.org/grpc/metadata"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

func TestIdentities(t *testing.T) {
	for _, i := range []identity{
		{},
		{cluster: ident.ClusterID{1}, source: cluster.Life{Node: ident.NodeID{2}, Epoch: 7}, target: ident.NodeID{3}},
		{source: cluster.Life{Node: ident.NodeID{2}}},
	} {
		got, err := parseIdentity(i.String())
		if err != nil || got != i {
			t.Errorf("%q: %+v, %v", i, got, err)
		}
	}
	for _, bad := range []string{"", "2", "1 - - 0 -", "2 - - 0", "2 - - x -", "2 - - 0 - -", "2 zz - 0 -", "2 {00000000-0000-0000-0000-000000000001} - 0 -"} {
		if i, err := parseIdentity(bad); err == nil {
			t.Errorf("%q is %+v", bad, i)
		} else if err.Kind != fault.LeaderUnavailable {
			t.Errorf("%q: %v", bad, err.Kind)
		}
	}
	for _, md := range []metadata.MD{nil, {}, {identityKey: {"2 - - 0 -", "2 - - 0 -"}}} {
		if _, err := readIdentity(md); err == nil {
			t.Errorf("%v says who calls", md)
		}
	}
}

func TestWhomACallMeans(t *testing.T) {
	a, b := ident.ClusterID{1}, ident.ClusterID{2}
	x, y := ident.NodeID{1}, ident.NodeID{2}
	for _, c := range []struct {
		i    identity
		self ident.NodeID
		c    ident.ClusterID
		ok   bool
	}{
		{identity{cluster: a, target: x}, x, a, true},
		{identity{cluster: a, target: x}, y, a, false},
		{identity{cluster: a, target: x}, x, b, false},
		{identity{target: x}, x, b, true},  // the caller has no cluster yet
		{identity{cluster: a}, x, a, true}, // it does not know who is there
		{identity{cluster: a, target: x}, ident.NodeID{}, ident.ClusterID{}, true},
	} {
		if err := c.i.meant(c.self, c.c); (err == nil) != c.ok {
			t.Errorf("%+v at %v of %v: %v", c.i, c.self, c.c, err)
		}
	}
}

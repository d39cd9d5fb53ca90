package lease_test

import (
	"fmt"
	"testing"
	"time"

	"tidewire/broker/lease"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// A lease that did not reach its member was no delivery, and what it let go is held back
// again; nothing goes on in a machine of which nothing is in anybody's hands.
func TestLeasesThatDidNotReachTheirMember(t *testing.T) {
	now := time.Unix(1000, 0)
	g := &cluster.Group{
		ID: ident.GroupID{1}, Modified: 5, Members: []cluster.Member{{ID: "a", Epoch: 5}}, Owners: []cluster.Owner{{Member: "a", Epoch: 5, Released: true}},
		Settings: cluster.GroupSettings{Mode: cluster.Exclusive, Lease: time.Second, MaxDeliveries: 3, MaxInFlight: 10},
	}
	a := cluster.MemberLife{Group: g.ID, Member: "a", Epoch: 5}
	m := lease.Begin(now, lease.Config{Leader: 1}, g, cluster.GroupProgress{Group: g.ID}, 0, 3)
	m.Offer(0, 3, []lease.Record{{Offset: 0, Hash: 1, Keyed: true, Stamp: 1}, {Offset: 1, Hash: 2, Keyed: true, Stamp: 1}, {Offset: 2, Hash: 1, Keyed: true, Stamp: 1}})
	take := func(limit int, want string) {
		t.Helper()
		leases, err := m.Take(now, a, limit, rpc.Hearing{})
		var said []string
		for _, l := range leases {
			said = append(said, fmt.Sprintf("%d/%d", l.Offset, l.Delivery))
		}
		if err != nil || fmt.Sprint(said) != want || m.InFlight() != m.Held("a") {
			t.Fatalf("took %v, %v; want %s", said, err, want)
		}
	}
	idle := func(want bool) {
		t.Helper()
		if m.Idle() != want {
			t.Fatalf("idle: %v", !want)
		}
	}
	idle(true)
	take(2, "[0/1 1/1]")
	idle(false)
	m.Undo(a, []ident.Offset{0, 1, 2, 9})
	idle(true)
	take(1, "[0/1]")
	m.Undo(cluster.MemberLife{Group: g.ID, Member: "a", Epoch: 4}, []ident.Offset{0}) // of another life
	if _, err := m.Settle(now, a, rpc.SettleOf{Through: -1, Nack: []rpc.Nack{{Offset: 0}}}); err != nil {
		t.Fatal(err)
	}
	take(1, "[0/2]")
	m.Undo(a, []ident.Offset{0}) // offset 2 has its key
	if s := m.Standing(now); s.Redelivered != 0 || s.InFlight != 0 {
		t.Errorf("%+v", s)
	}
	take(1, "[0/2]")
	take(9, "[1/1 2/1]")
	now = now.Add(time.Second)
	m.Tick(now)
	if n := m.RanOut(); n != 3 || m.RanOut() != 0 {
		t.Errorf("%d ran out", n)
	}
}

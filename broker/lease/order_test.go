package lease

import (
	"slices"
	"testing"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// What a machine says is worth nothing to a simulation if it says it in another order each time.
func TestWhoWaitsIsToldInOrder(t *testing.T) {
	g := groupOf(cluster.Exclusive)
	m, life := machineOf(g, 100), lifeOf(g)
	fill(m, 20)
	leases, err := m.Take(begun, life, 20, rpc.Hearing{})
	if err != nil || len(leases) < 10 {
		t.Fatal(leases, err)
	}
	for _, l := range leases {
		if _, err := m.Settle(begun, life, rpc.SettleOf{Ack: []ident.Offset{l.Offset}, Through: -1}); err != nil {
			t.Fatal(err)
		}
	}
	m.End()
	var told []Token
	for _, a := range m.Answers() {
		told = append(told, a.Token)
	}
	if len(told) != len(leases) || !slices.IsSorted(told) {
		t.Fatal(told)
	}
}

package replica

import (
	"slices"
	"testing"

	"tidewire/broker/replication"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// Who joins an ISR joins by the word of one life. A proposal that is open says so to its
// end: the next life may have lost what the former one had, and the coordinator, which
// knows that life for the latest, would take it.
func TestAProposalNamesTheLifeThatSpokeAndNoLaterOne(t *testing.T) {
	follower := ident.NodeID{2}
	former, next := cluster.Life{Node: follower, Epoch: 5}, cluster.Life{Node: follower, Epoch: 9}
	for name, then := range map[string]func(*Replica){
		"it is there still":       func(*Replica) {},
		"its stream ends":         func(r *Replica) { r.Lost(former) },
		"its next life begins":    func(r *Replica) { r.Lost(former); r.Standing(next, rpc.Standing{Partition: ref, Epoch: 3}) },
		"its next life stands so": func(r *Replica) { r.Standing(next, rpc.Standing{Partition: ref, Epoch: 3}) },
	} {
		t.Run(name, func(t *testing.T) {
			r := leading(&disk{}, cluster.Fsync)
			r.Order(Orders{View: replication.View{
				Epoch: 3, Version: 2, Leader: self, Replicas: []ident.NodeID{self, follower}, ISR: []ident.NodeID{self}, MinInsync: 1,
			}})
			if d, refused := r.Standing(former, rpc.Standing{Partition: ref, Epoch: 3}); refused != nil || !d.Agreed {
				t.Fatal(d, refused)
			}
			r.Held(former, rpc.Held{Partition: ref, Epoch: 3, Durable: record.At(0)})
			then(r)
			_, version, isr, ok := r.Proposal()
			if want := []cluster.Life{{Node: self}, former}; !ok || version != 2 || !slices.Equal(isr, want) {
				t.Fatalf("version %d: %v, %v; want %v", version, isr, ok, want)
			}
		})
	}
}

package replica

import (
	"testing"

	"tidewire/broker/replication"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// Whoever an unclean election chose may have written more than is on its disk. A follower
// that has the same takes as much of it for committed as it knew before, and shows that to
// readers; so it hears nothing before a power cut can take none of it away.
func TestAnUncleanLeaderSaysWhatIsCommittedOnceThatIsOnItsDisk(t *testing.T) {
	other := ident.NodeID{2}
	from := cluster.Life{Node: other, Epoch: 1}
	for name, tt := range map[string]struct {
		unclean   ident.Epoch
		waits     bool // for its disk
		otherwise string
	}{
		"its election was unclean":          {4, true, "a follower agrees with what is not on the leader's disk"},
		"an earlier one was":                {2, true, "a follower agrees with what is not on the leader's disk"},
		"what is committed is what it was ": {0, false, "a follower waits for a disk that it need not wait for"},
	} {
		t.Run(name, func(t *testing.T) {
			d := &disk{}
			r := leading(d, cluster.Fsync)
			r.Append(rpc.Append{Partition: ref, Batch: one(0)}, func(rpc.Appended) {})
			r.Order(Orders{View: replication.View{
				Epoch: 4, Version: 2, Leader: self, Replicas: []ident.NodeID{self, other}, ISR: []ident.NodeID{self}, MinInsync: 1, Unclean: tt.unclean,
			}})
			s := rpc.Standing{Partition: ref, Epoch: 4, End: record.At(1), Last: 3, Version: 2}
			if _, refused := r.Standing(from, s); (refused != nil) != tt.waits {
				t.Fatal(tt.otherwise)
			}
			d.sync(nil)
			if _, refused := r.Standing(from, s); refused != nil {
				t.Fatal("it is on the disk, and the follower is refused")
			}
		})
	}
}

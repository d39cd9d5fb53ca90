package groups

import (
	"slices"
	"testing"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// What a gateway says it heard is of each partition: an answer that has nothing of one does not
// say that an earlier one of it came.
func TestWhatIsHeardOfOnePartitionIsNotOfAnother(t *testing.T) {
	one, two := ident.Partition{Index: 1}, ident.Partition{Index: 2}
	both := []ident.Partition{one, two}
	l := &line{open: map[ident.Partition]open{}}
	says := func(call uint64, heard ...uint64) {
		t.Helper()
		if got := l.heard(both, 0); l.call() != call || !slices.Equal(got, heard) {
			t.Fatalf("call %d heard %v, want %d and %v", l.call(), got, call, heard)
		}
	}
	leased := func(p ident.Partition) rpc.TakenOf {
		return rpc.TakenOf{Partition: p, Leases: []rpc.Lease{{Offset: 1}}}
	}
	says(1)
	l.begin(1, 0, both)
	says(1, 0, 0) // it is under way
	l.end(1, []rpc.TakenOf{leased(one), {Partition: two}})
	says(2, 1, 0)
	l.begin(2, 0, both)
	l.end(2, nil) // lost
	says(3, 1, 0)
	l.begin(3, 0, both)
	l.end(3, []rpc.TakenOf{{Partition: one, Err: fault.New(fault.LeaderUnavailable, "not now")}, leased(two)})
	says(4, 1, 3) // of one the leader may not have had what take 3 said
	l.told(3, one)
	says(4, 1, 3)
	l.told(4, one)
	says(4, 0, 3)
	if !l.aim([]ident.Partition{one}) || !l.open[two].stray {
		t.Error("nobody tells the leader of what is the member's no more")
	}
	l.told(4, two)
	says(4)
}

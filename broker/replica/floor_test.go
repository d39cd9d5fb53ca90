package replica

import (
	"testing"
	"time"

	"tidewire/broker/replication"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// floored is a log of ten records whose epochs end at offset 6, and which notes what it is
// to drop.
type floored struct {
	disk
	purged []ident.Offset
}

func (f *floored) EpochEnd(e ident.Epoch) (ident.Epoch, ident.Offset) { return e, 6 }
func (f *floored) OffsetAt(int64) (ident.Offset, error)               { return 2, nil }
func (f *floored) Purge(below ident.Offset, hw record.Position) error {
	f.purged = append(f.purged, min(below, hw.Offset))
	return nil
}

// What was purged is served no more from the moment when a replica hears of it, also in
// the midst of a batch, and whether its log has dropped it or not.
func TestWhatWasPurgedIsNotServed(t *testing.T) {
	f := &floored{}
	r := leading(&f.disk, cluster.Fsync)
	r.log = f
	for i := range int64(10) {
		r.Append(rpc.Append{Partition: ref, Batch: one(i)}, func(rpc.Appended) {})
		f.sync(nil)
	}
	order := func(version uint64, floor Floor) {
		r.Order(Orders{
			View:  replication.View{Epoch: 3, Version: version, Leader: self, Replicas: []ident.NodeID{self}, ISR: []ident.NodeID{self}, MinInsync: 1},
			Range: ident.FullRange, Settings: cluster.Settings{MaxMessageBytes: 1000}, Floor: floor,
		})
	}
	bounds := func(start, hw ident.Offset) {
		t.Helper()
		if b, err := r.Bounds(); err != nil || b.Start != start || b.HW != hw {
			t.Fatalf("bounds %+v, %v; want %d to %d", b, err, start, hw)
		}
	}
	bounds(0, 10)
	order(2, Floor{At: 4})
	bounds(4, 10)
	if _, err := r.Read(t.Context(), rpc.Read{Partition: ref, Offset: 3, MaxBytes: 1}); !fault.Is(err, fault.OffsetExpired) || fault.As(err).Fields["earliest"] != ident.Offset(4) {
		t.Fatal("below the floor:", err)
	}
	if res, err := r.Read(t.Context(), rpc.Read{Partition: ref, Offset: 4, MaxBytes: 1}); err != nil || len(res.Batches) == 0 || res.Bounds.Start != 4 {
		t.Fatal("at the floor:", err)
	}
	if o, err := r.OffsetAt(0); err != nil || o != 4 {
		t.Fatal("the first record since the beginning of time is at", o, err)
	}
	if err := r.Retain(time.Now()); err != nil || len(f.purged) != 1 || f.purged[0] != 4 {
		t.Fatal("the log is to drop", f.purged, err)
	}
	f.start = 4
	if err := r.Retain(time.Now()); err != nil || len(f.purged) != 1 {
		t.Fatal("the log has dropped it, and is to drop", f.purged, err)
	}

	// A floor that is older than an unclean election counts up to where the log ended.
	order(3, Floor{At: 9, Unclamped: 3})
	bounds(6, 10)
	order(4, Floor{At: 7})
	bounds(7, 10)
	order(5, Floor{At: 10})
	bounds(10, 10)
}

// A replica that has yet to get what was purged says nothing that cannot be. It drops nothing of a log that may not be its leader's.
func TestABeginningIsNeverBehindTheEnd(t *testing.T) {
	f := &floored{}
	r := leading(&f.disk, cluster.Fsync)
	r.log = f
	r.Order(Orders{
		View:  replication.View{Epoch: 4, Version: 2, Leader: ident.NodeID{2}, Replicas: []ident.NodeID{self, {2}}, ISR: []ident.NodeID{self, {2}}, MinInsync: 1},
		Range: ident.FullRange, Floor: Floor{At: 5},
	})
	if b, err := r.Bounds(); err == nil || b.Start != 0 || b.HW != 0 {
		t.Fatalf("bounds of who serves nobody: %+v, %v", b, err)
	}
	if err := r.Retain(time.Now()); err != nil || len(f.purged) != 0 {
		t.Fatal("it drops what may not be its leader's log:", f.purged, err)
	}
}

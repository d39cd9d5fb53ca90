package memlog_test

import (
	"slices"
	"testing"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
	"tidewire/internal/testkit/memlog"
)

// read is the first offset of the batches from an offset on, and their end.
func read(t *testing.T, b *memlog.Broker, ref ident.Partition, from ident.Offset, bytes int) (base, end ident.Offset, err error) {
	t.Helper()
	res, err := b.Read(t.Context(), rpc.Read{Partition: ref, Offset: from, MaxBytes: bytes})
	if err != nil {
		return 0, 0, err
	}
	base, end = -1, -1
	for rest := res.Batches; len(rest) > 0; {
		var first record.Batch
		if first, rest, err = record.Cut(rest); err != nil {
			return 0, 0, err
		}
		if base < 0 {
			base = first.Header().Base
		}
		end = first.Header().Next()
	}
	return base, end, nil
}

func TestReadsAreOfWholeBatchesWithinBounds(t *testing.T) {
	b := memlog.New()
	ref := b.Topic("orders", 1).Ref(0)
	for range 4 {
		b.Append(ref, "a", memlog.Void, "", "c")
	}
	if o, ms := b.AppendRecord(ref, &record.Record{ContentType: record.JSON, Value: []byte("1")}); o != 12 || ms != 5 {
		t.Errorf("kept at %d, time %d", o, ms)
	}
	b.Retain(ref, 4)
	b.Spoil(ref, 9)
	for _, c := range []struct {
		from      ident.Offset
		bytes     int
		base, end ident.Offset
		err       fault.Kind
	}{
		{from: 3, err: fault.OffsetExpired},
		{from: 4, bytes: 1, base: 3, end: 6},
		{from: 4, bytes: 1 << 20, base: 3, end: 9},
		{from: 9, err: fault.LeaderUnavailable},
		{from: 13, base: -1, end: -1},
		{from: 14, err: fault.OffsetNotFound},
	} {
		base, end, err := read(t, b, ref, c.from, c.bytes)
		if (c.err == 0) != (err == nil) || err != nil && !fault.Is(err, c.err) || base != c.base || end != c.end {
			t.Errorf("from %d: %d to %d, %v", c.from, base, end, err)
		}
	}
	if n := b.Reads(); n != 6 {
		t.Errorf("%d reads", n)
	}
	if o, err := b.OffsetAt(t.Context(), ref, 3); o != 6 || err != nil {
		t.Errorf("the third batch is at %d, %v", o, err)
	}
	if keys, start := b.Keys(ref); start != 4 || !slices.Equal(keys[:4], []string{"a", "", "c", "a"}) || len(keys) != 13 {
		t.Errorf("%q from %d", keys, start)
	}
}

func TestANewLeaderMayHaveLess(t *testing.T) {
	b := memlog.New()
	ref := b.Topic("orders", 1).Ref(0)
	for range 3 {
		b.Append(ref, "a", "b")
	}
	b.Elect(ref, memlog.All)
	b.Append(ref, "c")
	b.Elect(ref, 5) // whole batches before it
	bounds, err := b.Bounds(t.Context(), ref)
	if err != nil || bounds != (rpc.Bounds{HW: 4, Epoch: 3}) {
		t.Fatalf("%+v %v", bounds, err)
	}
	for e := ident.Epoch(1); e <= 3; e++ {
		if end, err := b.EpochEnd(t.Context(), ref, e); end != 4 || err != nil {
			t.Errorf("epoch %d ends at %d, %v", e, end, err)
		}
	}
}

func TestWhoWaitsIsWoken(t *testing.T) {
	b := memlog.New()
	topic := b.Topic("orders", 2)
	ref, before := topic.Ref(0), b.Snapshot()
	for what, change := range map[string]func(){
		"an append":   func() { b.AppendValue(ref, "", "1") },
		"an election": func() { b.Elect(ref, memlog.All) },
		"an absence":  func() { b.Serve(ref, false) },
	} {
		b.Serve(ref, true)
		bounds, err := b.Bounds(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		more, err := b.Wait(ref, bounds.HW)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-more:
			t.Errorf("woken before %s", what)
		default:
		}
		change()
		<-more
	}
	b.Serve(ref, true)
	more, err := b.Wait(ref, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	b.DeleteTopic(topic)
	<-more
	if _, err := b.Bounds(t.Context(), ref); !fault.Is(err, fault.LeaderUnavailable) {
		t.Errorf("a partition of no topic: %v", err)
	}
	if before.ByID[topic.ID] == nil || b.Snapshot().ByID[topic.ID] != nil || b.Snapshot().Topics["orders"] != nil {
		t.Error("the topic is gone from the snapshot of now, and from no other")
	}
	if again := b.Topic("orders", 1); again.ID == topic.ID {
		t.Error("another topic of the same id")
	}
}

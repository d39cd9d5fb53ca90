package replica

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

func named(key string, content byte) record.Batch {
	var b record.Builder
	b.Add(&record.Record{Value: []byte("v"), ContentType: "text/plain", Idempotency: &record.Idempotency{Principal: "ann", Key: key, Hash: [16]byte{content}}})
	return b.Seal()
}

// An original is found once it is committed, and a leader of the past does not say that
// there is none.
func TestAnOriginalIsFoundOnceItIsCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, lease := &disk{}, true
		r := leadingWhile(d, cluster.Fsync, func() bool { return lease })
		seek := func(key string, content byte) (rpc.Original, error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return r.Original(ctx, &record.Idempotency{Principal: "ann", Key: key, Hash: [16]byte{content}})
		}
		var got answers
		got.append(r, "first", rpc.AcksAll, named("a", 1))
		if o, err := seek("a", 1); !fault.Is(err, fault.LeaderUnavailable) {
			t.Errorf("before the fsync: %+v, %v", o, err)
		}
		time.AfterFunc(time.Second/2, func() { d.sync(nil) })
		before := time.Now()
		if o, err := seek("a", 1); err != nil || !o.Known || o.Offset != 0 || o.Timestamp == 0 || time.Since(before) != time.Second/2 {
			t.Errorf("%+v, %v after %s", o, err, time.Since(before))
		}
		if _, err := seek("a", 2); !fault.Is(err, fault.IdempotencyKeyReused) {
			t.Errorf("another content: %v", err)
		}
		if o, err := seek("b", 1); err != nil || o.Known {
			t.Errorf("one that there is not: %+v, %v", o, err)
		}
		lease = false
		if _, err := seek("b", 1); !fault.Is(err, fault.LeaderUnavailable) {
			t.Errorf("without a lease: %v", err)
		}
		if o, err := seek("a", 1); err != nil || !o.Known {
			t.Errorf("what is committed stands, whoever leads: %+v, %v", o, err)
		}
		lease = true
		time.Sleep(time.Minute)
		if o, err := seek("a", 1); err != nil || o.Known {
			t.Errorf("after the topic's window: %+v, %v", o, err)
		}
		synctest.Wait() // for who told the answer
		got.expect(t, "first: offset 0")
		if r.Stop(errors.New("stopped")); len(d.batches) != 1 {
			t.Errorf("%d batches", len(d.batches))
		}
		if _, err := seek("a", 1); err == nil {
			t.Error("a replica that was stopped")
		}
	})
}

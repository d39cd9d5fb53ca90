package host

import (
	"testing"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// What was purged stays away from readers, through a restart and under the next leader,
// whether logs have dropped it or not; what producers are known by stays.
func TestAPurgeIsKeptByWhoeverLeadsNext(t *testing.T) {
	c, w := newCourt(2, three...), newWires()
	brokers := w.startAll(t, c, three...)
	for i := range int64(20) {
		publish(t, c, brokers, 1, i)
	}
	begins := func(at, end ident.Offset) {
		t.Helper()
		leader := c.part().Leader
		for _, b := range brokers {
			if b.id != leader {
				continue
			}
			await(t, "the leader to serve", func() bool {
				r, err := b.host.Replica(part)
				if err != nil {
					return false
				}
				got, err := r.Bounds()
				return err == nil && got.Start == at && got.HW == end
			})
			r, err := b.host.Replica(part)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.Read(t.Context(), rpc.Read{Partition: part, Offset: at - 1, MaxBytes: 1}); !fault.Is(err, fault.OffsetExpired) {
				t.Fatalf("below offset %d: %v", at, err)
			}
			if res, err := r.Read(t.Context(), rpc.Read{Partition: part, Offset: at, MaxBytes: 1}); err != nil || (len(res.Batches) == 0) != (at == end) {
				t.Fatalf("at offset %d: %v", at, err)
			}
		}
	}
	purge := func(at ident.Offset) { c.change(func(t *cluster.Topic) { t.Partitions[0].Purged = at }) }
	purge(7)
	begins(7, 20)

	// Who is away comes back to it, and leads.
	brokers[2].stop()
	purge(11)
	publish(t, c, brokers, 1, 20)
	brokers[2] = w.start(t, c, three[2], brokers[2].dir)
	sameEverywhere(t, c, brokers)
	c.lead(three[2])
	begins(11, 21)

	// All of it goes from the logs as well, and producers are known all the same.
	purge(21)
	for i := range brokers {
		await(t, "a log to drop all it has", func() bool { return len(brokers[i].bytesOf()) == 0 })
		brokers[i].stop()
		brokers[i] = w.start(t, c, three[i], brokers[i].dir)
	}
	begins(21, 21)
	if r := publish(t, c, brokers, 1, 20); !r.Duplicate || r.Offset != 20 {
		t.Fatalf("a repeat of what was purged: %+v", r)
	}
	publish(t, c, brokers, 1, 21)
	begins(21, 22)
	sameEverywhere(t, c, brokers)
}

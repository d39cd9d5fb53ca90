package host

import (
	"bytes"
	"slices"
	"testing"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// keep has a leader keep a large record of a producer.
func keep(t *testing.T, leader *broker, acks rpc.Acks, sequence int64) {
	t.Helper()
	var b record.Builder
	b.Add(&record.Record{Value: bytes.Repeat([]byte{byte(sequence)}, 32<<10), ContentType: "x/y", Producer: ident.ProducerID{9}, Sequence: sequence})
	sealed := b.Seal()
	await(t, "a kept record", func() bool {
		r, err := leader.host.Replica(part)
		if err != nil {
			return false
		}
		done := make(chan rpc.Appended, 1)
		r.Append(rpc.Append{Partition: part, Acks: acks, Batch: slices.Clone(sealed)}, func(a rpc.Appended) { done <- a })
		a := <-done
		return a.Err == nil && a.Records[0].Err == nil
	})
}

// A leader that has dropped its first records starts again, and what it knows to be
// committed does not move before somebody else has everything. A replica that has nothing
// can begin with it all the same: there are producers as of what is committed.
func TestAReplicaBeginsWithALeaderThatCommitsNothingWithoutIt(t *testing.T) {
	ids := []ident.NodeID{{1}, {2}}
	c := newCourt(2, ids...)
	c.change(func(t *cluster.Topic) { t.Settings.RetentionBytes = 256 << 10 })
	w := newWires()
	all := w.startAll(t, c, ids...)
	leader, follower := all[0], all[1]
	started := func(b *broker) ident.Offset {
		r, err := b.host.Replica(part)
		if err != nil {
			return 0
		}
		bounds, _ := r.Bounds()
		return bounds.Start
	}
	last := int64(-1)
	await(t, "a log that does not begin at 0", func() bool {
		last++
		keep(t, leader, rpc.AcksAll, last)
		return started(leader) > 0 && started(follower) > 0
	})

	leader.host.mu.RLock()
	log := leader.host.replicas[part].log
	leader.host.mu.RUnlock()
	await(t, "a word on what is committed", func() bool { return log.Committed() > log.Start() })

	follower.stop()
	await(t, "an ISR of one", func() bool { return len(c.part().ISR) == 1 })
	last++
	keep(t, leader, rpc.AcksLeader, last) // which nobody commits
	leader.stop()
	c.lead(leader.id, follower.id)
	leader = w.start(t, c, leader.id, leader.dir)
	r, err := leader.host.Replica(part)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := r.Bounds(); b.Start == 0 || b.HW <= b.Start {
		t.Errorf("after the restart it begins at %d, and %d is committed", b.Start, b.HW)
	}
	follower = w.start(t, c, follower.id, t.TempDir())
	await(t, "an ISR of both", func() bool { return len(c.part().ISR) == 2 })
	sameEverywhere(t, c, []*broker{leader, follower})

	// It knows all that the producer sent, also what is no longer kept.
	follower.host.mu.RLock()
	h := follower.host.replicas[part]
	follower.host.mu.RUnlock()
	c.lead(follower.id)
	await(t, "the new leader", func() bool { return h.replica.Load().Leads })
	for _, sequence := range []int64{0, last} {
		var b record.Builder
		b.Add(&record.Record{Value: []byte("again"), ContentType: "x/y", Producer: ident.ProducerID{9}, Sequence: sequence})
		done := make(chan rpc.Appended, 1)
		h.replica.Append(rpc.Append{Partition: part, Batch: b.Seal()}, func(a rpc.Appended) { done <- a })
		if a := <-done; a.Err != nil || !a.Records[0].Duplicate {
			t.Errorf("sequence %d again: %+v", sequence, a)
		}
	}
}

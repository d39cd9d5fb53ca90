package sim

import (
	"context"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// decidedPurge is the newest purge of a partition, as the coordinator has it.
type decidedPurge struct {
	topic ident.TopicID
	at    ident.Offset
	epoch ident.Epoch // of the leader when it was decided
}

// purgesAt says which seeds have somebody who purges: some of each kind, and none of those
// that docs/verification.md has for planted faults.
func purgesAt(seed uint64) bool {
	switch seed % 128 {
	case 21, 37: // durable by replication
		return true
	}
	switch seed % 64 {
	case 38, 54, 26, 7, 23: // with groups; with groups and unclean elections; with these alone
		return true
	}
	return seed%32 == 25 || seed%16 == 4 // a topic that is made again; nothing else
}

// purges takes records out of a partition, as a gateway does: its leader says how far that
// is committed, and the coordinator decides.
func (w *World) purges() {
	if w.healing {
		return
	}
	longest := 2 * time.Second
	if w.set.mayLose() { // what was purged last is to be lost
		longest = 300 * time.Millisecond
	}
	w.after(w.between(100*time.Millisecond, longest), w.purges)
	t := w.routes().Topics[topicName]
	if t == nil {
		return
	}
	p := &t.Partitions[w.rng.IntN(len(t.Partitions))]
	ref, b := t.Ref(p.Index), w.brokerOf(p.Leader)
	if b == nil {
		return
	}
	w.call(w.edge, b.p, w.set.Timeout, func(reply func(func())) {
		r := b.replica(ref)
		if r == nil {
			return
		}
		if d := w.purged[p.Index]; d.topic == t.ID && d.at > 0 && w.chance(0.5) { // somebody looks whether it is gone
			req := rpc.Read{Partition: ref, Offset: ident.Offset(w.rng.Int64N(int64(d.at))), MaxBytes: w.set.ReadBytes}
			res, err := r.Read(context.Background(), req)
			w.served(b, &req, &res, err)
			return
		}
		if bounds, err := r.Bounds(); err == nil && bounds.Epoch == p.LeaderEpoch {
			reply(func() { w.purge(ref, bounds) })
		}
	}, func(bool) {})
}

// purge is mostly of some of what there is, and of all at times, or mostly where that may be
// lost.
func (w *World) purge(ref ident.Partition, b rpc.Bounds) {
	before := b.HW
	if w.rng.IntN(4) > 0 != w.set.mayLose() {
		before = b.Start + ident.Offset(w.rng.Int64N(int64(b.HW-b.Start)+1))
	}
	w.council.propose(w.edge, cluster.Change{Purge: &cluster.Purge{Of: []cluster.PurgeOf{{Partition: ref, Epoch: b.Epoch, Before: before}}}}, func(a cluster.Answer, err error) {
		if err == nil && !a.Taken[0] {
			w.reached.hit("purge of a leader of the past")
		}
	})
}

// purgeDecided holds that nothing is purged but what is committed, now or since an unclean
// election, and notes what is.
func (w *World) purgeDecided(was, now *cluster.Topic, change *cluster.Change, answer *cluster.Answer) {
	if c := change.Clamp; c != nil && answer.Refusal == nil {
		for _, of := range c.Of {
			if of.Partition.Topic != now.ID || was.Partitions[of.Partition.Index].Unclamped == 0 || now.Partitions[of.Partition.Index].Unclamped != 0 {
				continue // not taken, or it came again: what was purged meanwhile is of what there is now
			}
			if at := now.Partitions[of.Partition.Index].Purged; at > of.End {
				w.fail("purges-end-with-the-log", "partition %d ended at %d, and stays purged below %d: %s", of.Partition.Index, of.End, at, w.describe(int(of.Partition.Index)))
			}
		}
	}
	for i := range now.Partitions {
		p, q := &was.Partitions[i], &now.Partitions[i]
		if q.Purged < p.Purged && change.Clamp != nil {
			w.reached.hit("purge of lost records cut back")
		}
		if t := w.era(i, q.LeaderEpoch); q.Unclamped == 0 && q.Purged > t.hw {
			w.fail("purges-are-committed", "partition %d is purged below %d, and committed up to %d: %s", i, q.Purged, t.hw, w.describe(i))
		}
		if q.Purged == p.Purged {
			continue
		}
		w.note("council", "%s: partition %d begins at %d", change.Kind(), i, q.Purged)
		w.purged[i] = decidedPurge{now.ID, q.Purged, q.LeaderEpoch}
		if change.Purge != nil {
			w.reached.hit("purge")
		}
	}
}

// unpurged holds that whoever leads after a purge, or has heard of it, does not serve what
// was purged.
func (w *World) unpurged(b *broker, req *rpc.Read, res *rpc.ReadResult, err error) {
	i := int(req.Partition.Index)
	d, h := w.purged[i], b.replicas[i]
	if p := w.council.partition(i); p == nil || p.Unclamped != 0 || d.topic != req.Partition.Topic {
		return // it counts less than it says
	}
	heard := false
	if t := b.snapshot.ByID[d.topic]; t != nil {
		heard = t.Partitions[i].Unclamped == 0 && t.Partitions[i].Purged >= d.at
	}
	later := h.seen.leads && h.view.Epoch > d.epoch
	switch {
	case req.Offset >= d.at || !heard && !later:
	case err == nil && len(res.Batches) > 0:
		w.fail("purged-stays-away", "%s, partition %d: serves offset %d, purged below %d in epoch %d: %s", b.name(), i, req.Offset, d.at, d.epoch, w.describe(i))
	case fault.Is(err, fault.OffsetExpired) && later:
		w.reached.hit("purged record refused by a later leader")
	}
}

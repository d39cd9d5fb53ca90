package sim

import (
	"time"

	"tidewire/internal/cluster"
)

// clamps tells the coordinator where partitions ended that may have lost records, as
// broker/host does.
func (b *broker) clamps() {
	if b.clamping || len(b.unclamped()) == 0 {
		return
	}
	b.clamping = true
	b.w.in(b.p, b.w.between(0, 30*time.Millisecond), b.clamp)
}

// unclamped are the partitions that it leads and whose groups have yet to hear of it.
func (b *broker) unclamped() (all []*cluster.Partition) {
	t := b.snapshot.Topics[topicName]
	if t == nil || t.ID != b.topic {
		return nil
	}
	for i := range t.Partitions {
		if p := &t.Partitions[i]; p.Unclamped != 0 && p.Leader == b.id {
			all = append(all, p)
		}
	}
	return all
}

func (b *broker) clamp() {
	change := cluster.Clamp{Leader: b.self}
	wanted := b.unclamped()
	for _, p := range wanted {
		r := b.replica(b.ref(int(p.Index)))
		if r == nil {
			continue
		}
		if bounds, err := r.Bounds(); err != nil || bounds.Epoch != p.LeaderEpoch {
			continue
		}
		if end, err := r.EpochEnd(p.Unclamped - 1); err == nil {
			change.Of = append(change.Of, cluster.ClampOf{Partition: b.ref(int(p.Index)), Epoch: p.LeaderEpoch, End: end})
		}
	}
	again := func() { b.w.in(b.p, b.w.between(10*time.Millisecond, 60*time.Millisecond), b.clamp) }
	switch {
	case len(wanted) == 0:
		b.clamping = false
	case len(change.Of) == 0:
		again()
	default:
		b.w.council.propose(b.p, cluster.Change{Clamp: &change}, func(cluster.Answer, error) { again() })
	}
}

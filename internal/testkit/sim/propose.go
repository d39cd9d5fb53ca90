package sim

import (
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
)

// wantsProposed notes that a partition's ISR should be another.
func (b *broker) wantsProposed(part int) {
	b.proposals[part] = true
	if !b.proposing {
		b.proposing = true
		b.w.in(b.p, 0, b.propose)
	}
}

// propose brings to the coordinator what replicas want their ISRs to be, one change at
// a time, as broker/host does.
func (b *broker) propose() {
	change := cluster.Insync{Leader: b.self}
	for part := range b.proposals {
		if !b.proposals[part] {
			continue
		}
		b.proposals[part] = false
		if of, ok := b.wanted(part); ok {
			change.Of = append(change.Of, of)
		}
	}
	if len(change.Of) == 0 {
		b.proposing = false
		return
	}
	if b.w.ambushes(b, &change) {
		nobody := fault.New(fault.CoordinatorUnavailable, "nobody answers")
		b.w.in(b.p, b.w.set.ProposeLimit, func() { b.proposed(&change, cluster.Answer{}, nobody) })
		return
	}
	b.w.council.propose(b.p, cluster.Change{Insync: &change}, func(answer cluster.Answer, err error) { b.proposed(&change, answer, err) })
}

func (b *broker) proposed(change *cluster.Insync, answer cluster.Answer, err error) {
	if fault.Is(err, fault.CoordinatorUnavailable) {
		// Nobody knows whether it was taken: the same is asked again.
		b.w.reached.hit("ISR change of unknown outcome")
		for _, of := range change.Of {
			if r := b.replica(of.Partition); r != nil {
				r.Unanswered(of.Epoch, of.Version)
			}
			b.proposals[of.Partition.Index] = true
		}
		b.w.in(b.p, 20*time.Millisecond, b.propose)
		return
	}
	for i, of := range change.Of {
		if err == nil && i < len(answer.Taken) && answer.Taken[i] {
			continue // the feed brings it
		}
		b.w.reached.hit("ISR change declined")
		if r := b.replica(of.Partition); r != nil {
			r.Declined(of.Epoch, of.Version)
		}
	}
	b.propose()
}

func (b *broker) wanted(part int) (cluster.InsyncOf, bool) {
	r := b.replica(b.ref(part))
	if r == nil {
		return cluster.InsyncOf{}, false
	}
	epoch, version, isr, ok := r.Proposal()
	if !ok {
		return cluster.InsyncOf{}, false
	}
	return cluster.InsyncOf{Partition: b.ref(part), Epoch: epoch, Version: version, ISR: isr}, true
}

package host

import (
	"context"
	"sync"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/sleep"
)

const (
	// proposalParts bounds the partitions of one change.
	proposalParts = 256
	// proposalPause is how long it waits after a coordinator that could not be reached.
	proposalPause = 20 * time.Millisecond
)

// proposals are the partitions whose ISR should be another, each once.
type proposals struct {
	wake chan struct{} // room for one

	mu sync.Mutex
	of map[ident.Partition]bool
}

func newProposals() proposals {
	return proposals{wake: make(chan struct{}, 1), of: map[ident.Partition]bool{}}
}

func (p *proposals) add(part ident.Partition) {
	p.mu.Lock()
	p.of[part] = true
	p.mu.Unlock()
	nudge(p.wake)
}

// take gives some of them.
func (p *proposals) take(most int) []ident.Partition {
	p.mu.Lock()
	defer p.mu.Unlock()
	var some []ident.Partition
	for part := range p.of {
		if len(some) == most {
			break
		}
		some = append(some, part)
		delete(p.of, part)
	}
	return some
}

// propose brings to the coordinator what replicas want their ISRs to be: those of one
// moment together, one change at a time.
func (h *Host) propose(ctx context.Context) error {
	for {
		select {
		case <-h.proposals.wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		for some := h.proposals.take(proposalParts); len(some) > 0; some = h.proposals.take(proposalParts) {
			h.proposeSome(ctx, some)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
	}
}

func (h *Host) proposeSome(ctx context.Context, partitions []ident.Partition) {
	change := cluster.Insync{Leader: h.links.Self()}
	for _, p := range partitions {
		if of, ok := h.wanted(p); ok {
			change.Of = append(change.Of, of)
		}
	}
	if len(change.Of) == 0 {
		return
	}
	answer, err := h.cfg.Coordinator.Propose(ctx, cluster.Change{Insync: &change})
	if fault.Is(err, fault.CoordinatorUnavailable) || ctx.Err() != nil {
		// Nobody knows whether it was taken: both sets are waited for, and the same is
		// asked again. What it rests on decides.
		for _, of := range change.Of {
			if r, err := h.Replica(of.Partition); err == nil {
				r.Unanswered(of.Epoch, of.Version)
			}
			h.proposals.add(of.Partition)
		}
		sleep.For(ctx, proposalPause)
		return
	}
	for i, of := range change.Of {
		if err == nil && i < len(answer.Taken) && answer.Taken[i] {
			h.metrics.changes.Inc()
			continue // the feed brings it
		}
		if r, err := h.Replica(of.Partition); err == nil {
			r.Declined(of.Epoch, of.Version)
		}
	}
	if err != nil {
		h.cfg.Logger.Warn("the coordinator refuses a change of in-sync replicas", "err", err)
	}
}

// wanted is what a replica proposes.
func (h *Host) wanted(p ident.Partition) (cluster.InsyncOf, bool) {
	r, err := h.Replica(p)
	if err != nil {
		return cluster.InsyncOf{}, false
	}
	epoch, version, isr, ok := r.Proposal()
	if !ok {
		return cluster.InsyncOf{}, false
	}
	return cluster.InsyncOf{Partition: p, Epoch: epoch, Version: version, ISR: isr}, true
}

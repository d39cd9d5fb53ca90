package host

import (
	"context"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/sleep"
)

// clampPause is how long it waits for what cannot be said yet, at most: where a partition
// ended is known once all that the leader took over with is committed.
const clampPause = time.Second

// unclamped are partitions that this node leads and whose groups have yet to hear where
// they ended, as of the newest snapshot.
func (h *Host) unclamped() (all []cluster.ClampOf, since []ident.Epoch) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, t := range h.snapshot.ByID {
		for i := range t.Partitions {
			if p := &t.Partitions[i]; p.Unclamped != 0 && p.Leader == h.cfg.Node {
				all = append(all, cluster.ClampOf{Partition: t.Ref(p.Index), Epoch: p.LeaderEpoch})
				since = append(since, p.Unclamped)
			}
		}
	}
	return all, since
}

// clamp tells the coordinator where partitions ended when somebody took over who may lack
// what was committed: groups may have counted more (rule C4).
func (h *Host) clamp(ctx context.Context) error {
	pause := proposalPause
	for {
		select {
		case <-h.clamps:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if h.clampSome(ctx) {
			pause = proposalPause
			continue
		}
		if !sleep.For(ctx, pause) {
			return context.Cause(ctx)
		}
		pause = min(2*pause, clampPause)
		nudge(h.clamps)
	}
}

// clampSome says what can be said. False: there is more, and the feed may bring nothing
// that would have it looked at again.
func (h *Host) clampSome(ctx context.Context) (all bool) {
	wanted, since := h.unclamped()
	change := cluster.Clamp{Leader: h.links.Self()}
	for i, of := range wanted {
		if len(change.Of) == proposalParts {
			break
		}
		r, err := h.Replica(of.Partition)
		if err != nil {
			continue
		}
		if b, err := r.Bounds(); err != nil || b.Epoch != of.Epoch {
			continue
		}
		if of.End, err = r.EpochEnd(since[i] - 1); err == nil {
			change.Of = append(change.Of, of)
		}
	}
	if len(change.Of) == 0 {
		return len(wanted) == 0
	}
	answer, err := h.cfg.Coordinator.Propose(ctx, cluster.Change{Clamp: &change})
	if err != nil {
		if !fault.Is(err, fault.CoordinatorUnavailable) && ctx.Err() == nil {
			h.cfg.Logger.Warn("the coordinator refuses to hear where partitions ended that lost records; it is told again", "partitions", len(change.Of), "err", err)
		}
		return false
	}
	h.noteClamped(&change, &answer)
	return len(change.Of) == len(wanted)
}

// noteClamped makes known what was lost, and who had counted it.
func (h *Host) noteClamped(change *cluster.Clamp, answer *cluster.Answer) {
	for i, of := range change.Of {
		if i < len(answer.Taken) && answer.Taken[i] {
			h.cfg.Logger.Warn("a partition may have lost records that were committed; no consumer group has counted anything from where it ended then, and their members join again",
				"topic", h.topicOf(of.Partition), "partition", of.Partition.Index, "ended", of.End)
		}
	}
	for _, c := range answer.Clamped {
		h.cfg.Logger.Warn("a consumer group had done with records that are lost; it goes on where the partition ended then",
			"topic", h.topicOf(c.Partition), "partition", c.Partition.Index, "group", c.Group, "committed", c.From, "now", c.To)
	}
}

func (h *Host) topicOf(p ident.Partition) string {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if t := h.snapshot.ByID[p.Topic]; t != nil {
		return t.Name
	}
	return p.Topic.String() // deleted meanwhile
}

func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

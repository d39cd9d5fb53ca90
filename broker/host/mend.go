package host

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tidewire/broker/replica"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// lookEvery is how often damaged logs are looked for without any news of them, and
// mendEvery how often where there are some.
const (
	lookEvery = 5 * time.Second
	mendEvery = 500 * time.Millisecond
)

/*
mend repairs damaged logs from their leaders. The order is what keeps records safe:
first the coordinator takes this node out of the ISR and ELR, so that nobody counts on
what it has; only once the feed says so is the log set aside, never deleted, and an
empty one begun, which catches up like any new replica. Where nobody else holds the
partition nothing is done: what can be read is all there is.
*/
func (h *Host) mend(ctx context.Context) error {
	next := time.NewTimer(mendEvery)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-next.C:
		case <-h.cfg.Store.DamageNews():
		}
		some, err := h.mendAll(ctx)
		if err != nil {
			return err
		}
		if some {
			next.Reset(mendEvery)
		} else {
			next.Reset(lookEvery)
		}
	}
}

// mendAll takes the next step with each damaged log; some: there are any.
func (h *Host) mendAll(ctx context.Context) (some bool, err error) {
	h.mu.RLock()
	s := h.snapshot
	var counted, free []ident.Partition // on by others, and not
	for ref, r := range h.replicas {
		if r.log.Damage() == nil {
			continue
		}
		some = true
		t := s.ByID[ref.Topic]
		if t == nil {
			continue
		}
		switch p, ok := t.Partition(ref.Index); {
		case !ok || h.alone(p):
		case slices.Contains(p.ISR, h.cfg.Node) || slices.Contains(p.ELR, h.cfg.Node):
			counted = append(counted, ref)
		case p.Leader != (ident.NodeID{}):
			free = append(free, ref)
		}
	}
	h.mu.RUnlock()
	h.disclaim(ctx, counted)
	for _, ref := range free {
		if err := h.replace(ref); err != nil {
			return some, fmt.Errorf("set the damaged log of partition %s aside: %w", ref, err)
		}
	}
	return some, nil
}

// alone says whether nobody else holds all that is committed.
func (h *Host) alone(p *cluster.Partition) bool {
	other := func(n ident.NodeID) bool { return n != h.cfg.Node }
	return !slices.ContainsFunc(p.ISR, other) && !slices.ContainsFunc(p.ELR, other)
}

// disclaim tells the coordinator that nobody is to count on what this node has.
func (h *Host) disclaim(ctx context.Context, partitions []ident.Partition) {
	for len(partitions) > 0 {
		n := min(len(partitions), cluster.MaxUnfit)
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		_, err := h.cfg.Coordinator.Propose(ctx, cluster.Change{Unfit: &cluster.Unfit{Life: h.links.Self(), Partitions: partitions[:n]}})
		cancel()
		if err != nil { // the next round tries again
			h.cfg.Logger.Warn("the coordinator does not hear of damaged replicas yet", "partitions", len(partitions), "err", err)
			return
		}
		partitions = partitions[n:]
	}
}

// replace begins a partition anew on this node.
func (h *Host) replace(ref ident.Partition) error {
	h.work.Lock()
	defer h.work.Unlock()
	h.mu.RLock()
	r, s := h.replicas[ref], h.snapshot
	h.mu.RUnlock()
	t := s.ByID[ref.Topic]
	if r == nil || t == nil {
		return nil
	}
	part, ok := t.Partition(ref.Index)
	if !ok || h.fate(s, ref) != kept || slices.Contains(part.ISR, h.cfg.Node) || slices.Contains(part.ELR, h.cfg.Node) {
		return nil
	}
	h.cfg.Logger.Warn("a damaged replica is set aside and fetched anew from its leader", "topic", t.Name, "partition", ref.Index)
	r.replica.Stop(fault.New(fault.LeaderUnavailable, "partition %d of topic %q is being repaired on this node", ref.Index, t.Name))
	if err := h.cfg.Store.Replace(ref); err != nil {
		return err
	}
	h.metrics.repairs.Inc()
	fresh, err := h.open(t, part, ref)
	if err != nil {
		return err
	}
	h.mu.Lock()
	fresh.modified, fresh.leader = t.Modified, part.Leader
	h.replicas[ref] = fresh
	h.noteMendedLocked(ref)
	h.mu.Unlock()
	h.enlist()
	fresh.replica.Order(replica.Orders{View: viewOf(t, part), Range: part.Range, Settings: t.Settings})
	return nil
}

// toldFor is how long a repair is told of. Without it nobody would hear of most: they
// take less than a second.
const toldFor = time.Minute

func (h *Host) noteMendedLocked(ref ident.Partition) {
	if h.mended == nil {
		h.mended = map[ident.Partition]time.Time{}
	}
	h.mended[ref] = time.Now()
	for other, at := range h.mended { // no more than were damaged in a minute
		if time.Since(at) > toldFor {
			delete(h.mended, other)
		}
	}
}

// Mended are the partitions whose replica here was damaged, and set aside for it,
// within the last minute.
func (h *Host) Mended() (all []ident.Partition) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for ref, at := range h.mended {
		if time.Since(at) <= toldFor {
			all = append(all, ref)
		}
	}
	return all
}

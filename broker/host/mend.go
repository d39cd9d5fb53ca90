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

// lookEvery is how often damaged logs are looked for without any news of them,
// mendEvery how often where there are some, and renounceEvery how often a life is ended
// for them at most: each time others take over what this node leads.
const (
	lookEvery     = 5 * time.Second
	mendEvery     = 500 * time.Millisecond
	renounceEvery = 5 * time.Second
)

/*
mend repairs damaged logs from their leaders. A log is set aside, never deleted, and an
empty one begun, which catches up like any new replica; but only once nobody counts on
what it held, now or later. It is not enough that the node is in no ISR: a leader that
heard from it before the damage was found may have asked for it to be taken in, and the
answer to that may be yes at any time.

So damage ends the node's life. The registration of the next one names what is damaged,
and in that command the node leaves the ISR and ELR of it (if others hold all that is
committed). From there on it comes back only by an Insync that names the new life, which
a leader asks for on the word of that life alone (replication.Leader.Open), and a damaged
replica says none (replica.Say). So what a snapshot that has the new life says stays true
until the fresh log has caught up, whatever is still under way from before.

Where nobody else holds all that is committed nothing is done: what can be read is all there
is. Unless the topic puts serving above keeping: then a follower that has got all of that
leads instead, uncleanly, and the damaged log is one that nobody counts on.
*/
func (h *Host) mend(ctx context.Context) error {
	next := time.NewTimer(mendEvery)
	defer next.Stop()
	var renounced time.Time
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-next.C:
		case <-h.cfg.Store.DamageNews():
		}
		if err := h.cfg.Store.NoteDamage(); err != nil {
			h.cfg.Logger.Warn("what is damaged cannot be noted for the next life of this node", "err", err)
		}
		now := h.harmed()
		for _, ref := range now.free {
			if err := h.replace(ref); err != nil {
				return fmt.Errorf("set the damaged log of partition %s aside: %w", ref, err)
			}
		}
		if len(now.counted) > 0 && h.cfg.Renounce != nil && (renounced.IsZero() || time.Since(renounced) >= renounceEvery) {
			renounced = time.Now()
			h.cfg.Renounce(now.life, fmt.Errorf("%d partitions are damaged here, which the coordinator has to hear first of all: %s", len(now.counted), now.counted[0]))
		}
		h.handsOn(ctx, now.alone)
		if now.any {
			next.Reset(mendEvery)
		} else {
			next.Reset(lookEvery)
		}
	}
}

// harm is what is damaged on this node, as of a life.
type harm struct {
	life    cluster.Life
	any     bool
	counted []ident.Partition // on by others, or who knows
	free    []ident.Partition // to be begun anew
	alone   []ident.Partition // led with nobody beside this node, where the topic allows unclean elections
}

// harmed says what has to be done with damaged logs.
func (h *Host) harmed() harm {
	h.mu.RLock()
	defer h.mu.RUnlock()
	now := harm{life: h.life}
	for ref, r := range h.replicas {
		if r.log.Damage() == nil {
			continue
		}
		now.any = true
		p := h.partitionLocked(ref)
		switch {
		case p == nil:
		case h.alone(p):
			if p.Leader == h.cfg.Node && h.snapshot.ByID[ref.Topic].Settings.Unclean {
				now.alone = append(now.alone, ref)
			}
		case !h.uncountedLocked(ref, p):
			now.counted = append(now.counted, ref)
		case p.Leader != (ident.NodeID{}) && h.cfg.Store.ReadOnly() == nil:
			now.free = append(now.free, ref)
		}
	}
	return now
}

// handsOn gives up the lead of damaged partitions to followers that have got all that can be
// read of them. What is not taken is asked for again with the next look.
func (h *Host) handsOn(ctx context.Context, alone []ident.Partition) {
	var c cluster.Elect
	for _, ref := range alone[:min(len(alone), cluster.MaxParts)] {
		r, err := h.Replica(ref)
		if err != nil {
			continue
		}
		if version, who, ok := r.Successor(); ok {
			c.Of = append(c.Of, cluster.ElectOf{Partition: ref, Version: version, Leader: who.Node, Unclean: who.Epoch})
		}
	}
	if len(c.Of) == 0 {
		return
	}
	answer, err := h.cfg.Coordinator.Propose(ctx, cluster.Change{Elect: &c})
	if err != nil {
		h.cfg.Logger.Warn("a damaged partition has nobody beside this node, and the coordinator cannot be asked for another leader", "topic", h.topicOf(c.Of[0].Partition), "partition", c.Of[0].Partition.Index, "err", err)
		return
	}
	for i, of := range c.Of {
		if i < len(answer.Taken) && answer.Taken[i] {
			h.cfg.Logger.Warn("a damaged partition had nobody beside this node and is led by another replica: what cannot be read here, and what comes after it, is lost to the topic, which allows unclean elections; "+
				"the damaged log goes to quarantine", "topic", h.topicOf(of.Partition), "partition", of.Partition.Index, "leader", h.nameOf(of.Leader))
		}
	}
}

// partitionLocked is a partition as the snapshot in hand has it; nil: it does not.
func (h *Host) partitionLocked(ref ident.Partition) *cluster.Partition {
	t := h.snapshot.ByID[ref.Topic]
	if t == nil {
		return nil
	}
	p, _ := t.Partition(ref.Index)
	return p
}

// uncountedLocked says whether nobody counts on what this node holds of a damaged
// partition, nor will before it has been begun anew: see mend.
func (h *Host) uncountedLocked(ref ident.Partition, p *cluster.Partition) bool {
	self := h.snapshot.Nodes[h.cfg.Node]
	return self != nil && self.Life() == h.life && h.declared[ref] && !slices.Contains(p.ISR, h.cfg.Node) && !slices.Contains(p.ELR, h.cfg.Node)
}

// alone says whether nobody else holds all that is committed.
func (h *Host) alone(p *cluster.Partition) bool {
	other := func(n ident.NodeID) bool { return n != h.cfg.Node }
	return !slices.ContainsFunc(p.ISR, other) && !slices.ContainsFunc(p.ELR, other)
}

// Live begins a life of this node. In its registration the coordinator heard that
// certain partitions are damaged here. Where others are as well the life is refused, with
// fault.Fenced: it must not count before the coordinator knows.
func (h *Host) Live(life cluster.Life, declared []ident.Partition) error {
	h.mu.Lock()
	h.life, h.declared = life, map[ident.Partition]bool{}
	for _, ref := range declared {
		h.declared[ref] = true
	}
	h.mu.Unlock()
	for _, ref := range h.cfg.Store.Damaged() {
		if !slices.Contains(declared, ref) {
			return fault.New(fault.Fenced, "partition %s was found to be damaged while life %d began", ref, life.Epoch)
		}
	}
	h.links.Live(life)
	return nil
}

// replace begins a partition anew on this node.
func (h *Host) replace(ref ident.Partition) error {
	h.work.Lock()
	defer h.work.Unlock()
	h.mu.RLock()
	r, s, part := h.replicas[ref], h.snapshot, h.partitionLocked(ref)
	mayGo := r != nil && part != nil && h.uncountedLocked(ref, part) && h.fate(s, ref) == kept
	h.mu.RUnlock()
	if !mayGo {
		return nil
	}
	t := s.ByID[ref.Topic]
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
	delete(h.declared, ref) // that was of the other log
	h.noteMendedLocked(ref)
	h.mu.Unlock()
	h.enlist()
	fresh.replica.Order(replica.Orders{View: viewOf(t, part), Range: part.Range, Settings: t.Settings})
	return nil
}

// toldFor is how long a repair is told of. Without it nobody would hear of most: they
// take less than a second.
const toldFor = time.Minute

// NoteRenewed counts every replica as set aside and fetched anew where the data folder
// was begun anew, with all that was in it.
func (h *Host) NoteRenewed() {
	if !h.cfg.Store.Renewed() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for ref := range h.replicas {
		h.metrics.repairs.Inc()
		h.noteMendedLocked(ref)
	}
}

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

package host

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"tidewire/broker/partition"
	"tidewire/broker/replica"
	"tidewire/broker/replication"
	"tidewire/broker/storage"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
)

// Sweep settles what the disk holds against the first snapshot: deletions that
// a crash cut short are finished, and what the coordinator does not know is set
// aside. Call it once, before the first Apply.
func (h *Host) Sweep(s *cluster.Snapshot) error {
	for _, p := range h.cfg.Store.Found() {
		switch h.fate(s, p) {
		case kept:
			continue
		case over:
			if err := h.cfg.Store.Delete(p); err != nil {
				return fmt.Errorf("finish the deletion of partition %s: %w", p, err)
			}
			continue
		case unknown:
		}
		h.cfg.Logger.Error("a partition on the disk is unknown to the coordinator; it is set aside in the quarantine folder, nothing of it is deleted",
			"topic_id", p.Topic, "partition", p.Index)
		if err := h.cfg.Store.Quarantine(p); err != nil {
			return fmt.Errorf("set partition %s aside: %w", p, err)
		}
	}
	return nil
}

// fate is what a snapshot says about a partition that the disk holds.
type fate uint8

const (
	unknown fate = iota // to the coordinator: kept aside, whatever the reason
	kept
	over // deleted, or moved to other nodes: decided by the coordinator, so others have it
)

func (h *Host) fate(s *cluster.Snapshot, p ident.Partition) fate {
	if t := s.ByID[p.Topic]; t != nil {
		part, ok := t.Partition(p.Index)
		switch {
		case ok && slices.Contains(part.Replicas, h.cfg.Node):
			return kept
		case ok:
			return over
		}
	}
	if _, deleted := s.Deleted[p.Topic]; deleted {
		return over
	}
	return unknown
}

// Apply makes the replicas what a snapshot says.
func (h *Host) Apply(ctx context.Context, s *cluster.Snapshot) error {
	h.work.Lock()
	defer h.work.Unlock()
	h.mu.Lock()
	before := h.snapshot
	h.snapshot = s // lives are known before anything rests on them
	h.mu.Unlock()
	lacks := false
	g, _ := errgroup.WithContext(ctx)
	g.SetLimit(2 * runtime.GOMAXPROCS(0))
	for _, t := range s.Topics {
		for i := range t.Partitions {
			part := &t.Partitions[i]
			lacks = lacks || part.Unclamped != 0 && part.Leader == h.cfg.Node
			if !slices.Contains(part.Replicas, h.cfg.Node) || h.knows(t, part) {
				continue
			}
			g.Go(func() error { return h.take(before, t, part) })
		}
	}
	err := errors.Join(g.Wait(), h.drop(s))
	h.enlist()
	h.links.Want(h.leaders())
	if h.cfg.Applied != nil {
		h.cfg.Applied(s)
	}
	h.mu.Lock()
	h.index.Store(s.Index)
	if h.acted != nil {
		close(h.acted)
		h.acted = nil
	}
	h.mu.Unlock()
	if lacks {
		nudge(h.clamps)
	}
	return err
}

// Reached returns once the node has acted on everything up to a Raft index.
func (h *Host) Reached(ctx context.Context, index uint64) error {
	for {
		h.mu.Lock()
		if h.index.Load() >= index {
			h.mu.Unlock()
			return nil
		}
		if h.acted == nil {
			h.acted = make(chan struct{})
		}
		acted := h.acted
		h.mu.Unlock()
		select {
		case <-acted:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// knows reports that a replica was told of the newest change of its topic.
func (h *Host) knows(t *cluster.Topic, part *cluster.Partition) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	r, ok := h.replicas[t.Ref(part.Index)]
	return ok && r.modified == t.Modified
}

// take opens a partition, or tells its replica what changed since the snapshot before.
func (h *Host) take(before *cluster.Snapshot, t *cluster.Topic, part *cluster.Partition) error {
	ref := t.Ref(part.Index)
	h.mu.RLock()
	r := h.replicas[ref]
	h.mu.RUnlock()
	if r == nil {
		var err error
		if r, err = h.open(t, part, ref); err != nil {
			return fmt.Errorf("open partition %d of topic %q: %w", part.Index, t.Name, err)
		}
	} else {
		r.log.Configure(logConfig(t))
	}
	h.tellUnclean(before, t, part, r.log.End())
	h.mu.Lock()
	r.modified, r.leader = t.Modified, part.Leader
	h.replicas[ref] = r
	h.mu.Unlock()
	r.replica.Order(replica.Orders{View: viewOf(t, part), Range: part.Range, Settings: t.Settings, Floor: floorOf(part)})
	return nil
}

func viewOf(t *cluster.Topic, p *cluster.Partition) replication.View {
	return replication.View{
		Epoch: p.LeaderEpoch, Version: p.Version, Leader: p.Leader, Replicas: p.Replicas, ISR: p.ISR, MinInsync: t.Settings.MinInsync, Unclean: p.Unclean,
	}
}

func floorOf(p *cluster.Partition) replica.Floor {
	return replica.Floor{At: p.Purged, Unclamped: p.Unclamped}
}

// leaders are the other nodes that lead what this one holds.
func (h *Host) leaders() map[ident.NodeID]bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	all := map[ident.NodeID]bool{}
	for _, r := range h.replicas {
		if r.leader != h.cfg.Node && r.leader != (ident.NodeID{}) {
			all[r.leader] = true
		}
	}
	return all
}

// open opens a partition's log and rebuilds what its machine remembers.
func (h *Host) open(t *cluster.Topic, part *cluster.Partition, ref ident.Partition) (*held, error) {
	log, err := h.cfg.Store.Log(ref, logConfig(t))
	if err != nil {
		return nil, err
	}
	rules := partition.Rules{Range: part.Range, MaxMessageBytes: t.Settings.MaxMessageBytes, IdempotencyWindow: t.Settings.IdempotencyWindow}
	rebuild := func(rules partition.Rules) (*partition.Machine, error) { return h.recover(t.Name, ref, log, rules) }
	machine, err := rebuild(rules)
	if err != nil {
		return nil, err
	}
	r := replica.New(replica.Config{
		Partition: ref, Topic: t.Name, Self: h.cfg.Node, Log: keeper{log}, Machine: machine, Rebuild: rebuild, Outlet: outlet{h},
		Lease: func() bool { return h.cfg.Lease(h.index.Load()) }, Alive: h.alive, Now: time.Now, Lag: h.cfg.Lag, Logger: h.cfg.Logger,
	})
	log.SetSnapshotter(r.Snapshot)
	return &held{replica: r, log: log, topic: t.Name}, nil
}

func logConfig(t *cluster.Topic) storage.LogConfig {
	return storage.LogConfig{RetentionAge: t.Settings.RetentionAge, RetentionBytes: t.Settings.RetentionBytes}
}

// recover rebuilds what the machine of a partition remembers: from the newest
// producer state that the log holds, and from the records after it.
func (h *Host) recover(topic string, ref ident.Partition, log *storage.Log, rules partition.Rules) (*partition.Machine, error) {
	at, state := log.Recovered()
	machine, err := partition.Restore(state, at)
	if err != nil {
		h.cfg.Logger.Warn("the producer state of a partition cannot be read; it is rebuilt from the log", "topic", topic, "partition", ref.Index, "err", err)
		machine, at = partition.New(log.Start()), log.Start()
	}
	err = log.Fold(at, func(b record.Batch) error { return machine.Fold(b, rules) })
	if err != nil && log.Damage() == nil {
		return nil, err
	}
	return machine, nil // a damaged log takes nothing more, so what is missing in the machine is never asked
}

// outlet is where replicas leave word.
type outlet struct{ *Host }

func (o outlet) Push(follower ident.NodeID, p ident.Partition) { o.links.Push(follower, p) }
func (o outlet) Tell(follower ident.NodeID, p ident.Partition) { o.links.Tell(follower, p) }
func (o outlet) Say(leader ident.NodeID, p ident.Partition)    { o.links.Say(leader, p) }
func (o outlet) Heard(leader ident.NodeID) time.Time           { return o.links.Heard(leader) }
func (o outlet) Propose(p ident.Partition)                     { o.proposals.add(p) }

// drop lets go of what the node no longer holds: deleted topics, and partitions that
// have moved to other nodes.
func (h *Host) drop(s *cluster.Snapshot) error {
	type gone struct {
		ref ident.Partition
		*held
	}
	var drop []gone
	h.mu.Lock()
	for ref, r := range h.replicas {
		if h.fate(s, ref) != kept {
			drop = append(drop, gone{ref, r})
			delete(h.replicas, ref)
			delete(h.declared, ref)
		}
	}
	h.mu.Unlock()
	var errs []error
	for _, d := range drop {
		why := fault.New(fault.TopicNotFound, "topic %q was deleted", d.topic)
		if s.ByID[d.ref.Topic] != nil {
			why = fault.New(fault.LeaderUnavailable, "partition %d of topic %q has moved to other nodes", d.ref.Index, d.topic)
		}
		d.replica.Stop(why)
		if h.fate(s, d.ref) == unknown {
			errs = append(errs, h.cfg.Store.Quarantine(d.ref))
			continue
		}
		errs = append(errs, h.cfg.Store.Delete(d.ref))
	}
	return errors.Join(errs...)
}

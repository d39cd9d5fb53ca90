package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"tidewire/broker/partition"
	"tidewire/broker/replica"
	"tidewire/broker/storage"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/vfs"
)

// Feed is the coordinator's change feed. Next blocks until there is a snapshot
// newer than after.
type Feed interface {
	Next(ctx context.Context, after uint64) (*cluster.Snapshot, error)
}

// Config of a Host.
type Config struct {
	Node   ident.NodeID
	Store  *storage.Store
	Feed   Feed
	Logger *slog.Logger
}

// held is a replica and what it was last told.
type held struct {
	replica  *replica.Replica
	log      *storage.Log
	topic    string
	modified uint64 // of the topic, when it was last looked at
}

// Host holds the replicas of this node.
type Host struct {
	cfg Config

	mu       sync.RWMutex
	replicas map[ident.Partition]*held
	index    uint64        // of the snapshot that was acted on
	acted    chan struct{} // closed when index moves; nil: nobody waits
}

// New makes a Host. It opens nothing.
func New(cfg Config) *Host {
	return &Host{cfg: cfg, replicas: map[ident.Partition]*held{}}
}

// Replica finds a partition of this node.
func (h *Host) Replica(p ident.Partition) (*replica.Replica, error) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if r, ok := h.replicas[p]; ok {
		return r.replica, nil
	}
	return nil, fault.New(fault.LeaderUnavailable, "this node does not hold partition %d of that topic (yet)", p.Index)
}

// Replicas lists what the node holds.
func (h *Host) Replicas() []*replica.Replica {
	h.mu.RLock()
	defer h.mu.RUnlock()
	out := make([]*replica.Replica, 0, len(h.replicas))
	for _, r := range h.replicas {
		out = append(out, r.replica)
	}
	return out
}

// Sweep settles what the disk holds against the first snapshot: deletions that
// a crash cut short are finished, and what the coordinator does not know is set
// aside. Call it once, before the first Apply.
func (h *Host) Sweep(s *cluster.Snapshot) error {
	for _, p := range h.cfg.Store.Found() {
		if t := s.ByID[p.Topic]; t != nil {
			if part, ok := t.Partition(p.Index); ok && slices.Contains(part.Replicas, h.cfg.Node) {
				continue
			}
		}
		if _, deleted := s.Deleted[p.Topic]; deleted {
			if err := h.cfg.Store.Delete(p); err != nil {
				return fmt.Errorf("finish the deletion of partition %s: %w", p, err)
			}
			continue
		}
		h.cfg.Logger.Error("a partition on the disk is unknown to the coordinator; it is set aside in the quarantine folder, nothing of it is deleted",
			"topic_id", p.Topic, "partition", p.Index)
		if err := h.cfg.Store.Quarantine(p); err != nil {
			return fmt.Errorf("set partition %s aside: %w", p, err)
		}
	}
	return nil
}

// Apply makes the replicas what a snapshot says.
func (h *Host) Apply(ctx context.Context, s *cluster.Snapshot) error {
	g, _ := errgroup.WithContext(ctx)
	g.SetLimit(2 * runtime.GOMAXPROCS(0))
	for _, t := range s.Topics {
		for i := range t.Partitions {
			part := &t.Partitions[i]
			if !slices.Contains(part.Replicas, h.cfg.Node) || h.knows(t, part) {
				continue
			}
			g.Go(func() error { return h.take(t, part) })
		}
	}
	err := errors.Join(g.Wait(), h.drop(s))
	h.mu.Lock()
	h.index = s.Index
	if h.acted != nil {
		close(h.acted)
		h.acted = nil
	}
	h.mu.Unlock()
	return err
}

// Reached returns once the node has acted on everything up to a Raft index.
func (h *Host) Reached(ctx context.Context, index uint64) error {
	for {
		h.mu.Lock()
		if h.index >= index {
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

// take opens a partition, or tells its replica what changed.
func (h *Host) take(t *cluster.Topic, part *cluster.Partition) error {
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
	if part.Leader == h.cfg.Node {
		r.replica.Lead(part.LeaderEpoch, part.Range, t.Settings)
	}
	h.mu.Lock()
	r.modified = t.Modified
	h.replicas[ref] = r
	h.mu.Unlock()
	return nil
}

// open opens a partition's log and rebuilds what its machine remembers.
func (h *Host) open(t *cluster.Topic, part *cluster.Partition, ref ident.Partition) (*held, error) {
	log, err := h.cfg.Store.Log(ref, logConfig(t))
	if err != nil {
		return nil, err
	}
	machine, err := h.recover(t, part, log)
	if err != nil {
		return nil, err
	}
	r := replica.New(ref, t.Name, log, machine)
	log.SetSnapshotter(r.Snapshot)
	return &held{replica: r, log: log, topic: t.Name}, nil
}

func logConfig(t *cluster.Topic) storage.LogConfig {
	return storage.LogConfig{RetentionAge: t.Settings.RetentionAge, RetentionBytes: t.Settings.RetentionBytes}
}

// recover rebuilds what the machine of a partition remembers: from the newest
// producer state that the log holds, and from the records after it.
func (h *Host) recover(t *cluster.Topic, part *cluster.Partition, log *storage.Log) (*partition.Machine, error) {
	rules := partition.Rules{Range: part.Range, MaxMessageBytes: t.Settings.MaxMessageBytes, IdempotencyWindow: t.Settings.IdempotencyWindow}
	at, state := log.Recovered()
	machine, err := partition.Restore(state, at)
	if err != nil {
		h.cfg.Logger.Warn("the producer state of a partition cannot be read; it is rebuilt from the log", "topic", t.Name, "partition", part.Index, "err", err)
		machine, at = partition.New(log.Start()), log.Start()
	}
	err = log.Fold(at, func(b record.Batch) error { return machine.Fold(b, rules) })
	if err != nil && log.Damage() == nil {
		return nil, err
	}
	return machine, nil // a damaged log takes nothing more, so what is missing in the machine is never asked
}

// drop lets go of what the node no longer holds: deleted topics.
func (h *Host) drop(s *cluster.Snapshot) error {
	type gone struct {
		ref ident.Partition
		*held
	}
	var drop []gone
	h.mu.Lock()
	for ref, r := range h.replicas {
		if s.ByID[ref.Topic] == nil {
			drop = append(drop, gone{ref, r})
			delete(h.replicas, ref)
		}
	}
	h.mu.Unlock()
	var errs []error
	for _, d := range drop {
		d.replica.Stop(fault.New(fault.TopicNotFound, "topic %q was deleted", d.topic))
		if _, deleted := s.Deleted[d.ref.Topic]; !deleted {
			errs = append(errs, h.cfg.Store.Quarantine(d.ref))
			continue
		}
		errs = append(errs, h.cfg.Store.Delete(d.ref))
	}
	return errors.Join(errs...)
}

// retentionEvery is how often logs are asked to drop what is over.
const retentionEvery = time.Second

// Run follows the change feed and retention until ctx ends.
func (h *Host) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return h.follow(ctx) })
	g.Go(func() error { return h.retain(ctx) })
	if err := g.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// MetaIndex is the key under which the data folder remembers the newest Raft
// index this node acted on, so that a coordinator's store that is older than
// the data is recognised at the next start.
const MetaIndex = "coordinator_index"

func (h *Host) follow(ctx context.Context) error {
	h.mu.RLock()
	index := h.index
	h.mu.RUnlock()
	kept := time.Time{}
	for {
		s, err := h.cfg.Feed.Next(ctx, index)
		if err != nil {
			return err
		}
		if err := h.Apply(ctx, s); err != nil {
			return err
		}
		index = s.Index
		if time.Since(kept) >= time.Second { // a burst of changes costs one write a second
			if err := h.Remember(); err != nil {
				return err
			}
			kept = time.Now()
		}
	}
}

// Remember notes the index of the newest snapshot that was acted on.
func (h *Host) Remember() error {
	h.mu.RLock()
	index := h.index
	h.mu.RUnlock()
	err := h.cfg.Store.PutMeta(MetaIndex, fmt.Sprint(index))
	if vfs.IsNoSpace(err) || vfs.IsNoFiles(err) {
		// What is remembered is a lower bound, so an older one is right as well.
		h.cfg.Logger.Warn("the index acted on is not remembered: disk space or open files are lacking", "index", index, "err", err)
		return nil
	}
	return err
}

func (h *Host) retain(ctx context.Context) error {
	tick := time.NewTicker(retentionEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case now := <-tick.C:
			for _, r := range h.Replicas() {
				if err := r.Retain(now); err != nil {
					return fmt.Errorf("retention: %w", err)
				}
			}
		}
	}
}

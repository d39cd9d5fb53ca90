package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"tidewire/broker/replica"
	"tidewire/internal/vfs"
)

// retentionEvery is how often logs are asked to drop what is over.
const retentionEvery = time.Second

// Run follows the change feed and retention until ctx ends.
func (h *Host) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return h.follow(ctx) })
	g.Go(func() error { return h.retain(ctx) })
	g.Go(func() error { return h.tick(ctx) })
	g.Go(func() error { return h.links.Run(ctx) })
	g.Go(func() error { return h.propose(ctx) })
	g.Go(func() error { return h.clamp(ctx) })
	g.Go(func() error { return h.mend(ctx) })
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
	index := h.index.Load()
	kept := time.Time{}
	for {
		s, err := h.cfg.Coordinator.Next(ctx, index)
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
	index := h.index.Load()
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

// tick tells the replicas that time passes.
func (h *Host) tick(ctx context.Context) error {
	tick := time.NewTicker(replica.TickEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
			for _, r := range h.Replicas() {
				r.Tick()
			}
		}
	}
}

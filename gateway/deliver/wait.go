package deliver

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"tidewire/gateway/topology"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
	"tidewire/internal/sleep"
)

// Pauses between two tries of something that needs a leader.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = 250 * time.Millisecond
)

// passing reports a partition without a leader that may get one.
func passing(err error) bool { return fault.Is(err, fault.LeaderUnavailable) && !fault.Lasting(err) }

// patiently tries until there is another outcome than a leader that is missing
// for now, or ctx ends: the last outcome is the answer then.
func patiently(ctx context.Context, try func() error) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := try()
		if err == nil || !passing(err) {
			return err
		}
		if !sleep.For(ctx, pause) {
			return err
		}
	}
}

// asked is how many partitions are asked about at once, for one request: their
// leaders may be other nodes.
const asked = 16

// each does something for each of n partitions, some at once, and returns the
// first error.
func each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	if n == 1 {
		return f(ctx, 0)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(asked)
	for i := range n {
		g.Go(func() error { return f(ctx, i) })
	}
	return g.Wait()
}

// bounds waits for a partition that is served.
func (h *Hub) bounds(ctx context.Context, p ident.Partition) (b rpc.Bounds, err error) {
	err = patiently(ctx, func() (err error) {
		if b, err = h.source.Bounds(ctx, p); err != nil {
			err = h.explain(p, err)
		}
		return err
	})
	return b, err
}

// explain turns the silence of a deleted topic's partitions into its reason.
func (h *Hub) explain(p ident.Partition, err error) error {
	if !fault.Is(err, fault.LeaderUnavailable) && !fault.Is(err, fault.PartitionNotFound) {
		return err
	}
	if h.deleted(p.Topic) {
		return fault.New(fault.TopicNotFound, "the topic was deleted")
	}
	return err
}

// deleted reports whether a topic that once was in a snapshot has gone from it.
func (h *Hub) deleted(id ident.TopicID) bool {
	_, ok := h.topology.Snapshot().ByID[id]
	return !ok
}

// layoutOf waits until the topic's layout is at least of the generation.
func (h *Hub) layoutOf(ctx context.Context, t *cluster.Topic, g ident.Generation) (*cluster.Topic, error) {
	err := patiently(ctx, func() error {
		if t.Generation >= g {
			return nil
		}
		newer, ok := h.topology.Snapshot().ByID[t.ID]
		if !ok {
			return topology.NotFound(t.Name)
		}
		if t = newer; t.Generation >= g {
			return nil
		}
		return fault.New(fault.LeaderUnavailable, "the cursor knows a newer layout of topic %q than this node", t.Name)
	})
	return t, err
}

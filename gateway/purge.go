package gateway

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
	"tidewire/internal/sleep"
)

// PurgeTopic takes everything below an offset out of partitions: those that before names, or,
// where it is nil, all of them, up to what their high watermarks are now. It gives where
// they begin then. Nothing is decided before the leaders of all of them have said that they
// hold as much.
//
// What the coordinator has decided stands through every change of leaders; the answer comes
// once the replicas that serve readers have acted on it as well, or after settleTime.
func (c control) PurgeTopic(ctx context.Context, t *cluster.Topic, before map[ident.Index]ident.Offset) ([]cluster.Position, error) {
	p, err := purgeOf(t, before)
	if err != nil {
		return nil, err
	}
	decided, done := c.deciding(ctx)
	defer done()
	index, err := p.decide(decided, c)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	c.settle(ctx, index)
	return p.begins(ctx, c), nil
}

// purge is one call under way.
type purge struct {
	topic *cluster.Topic
	parts []*purged // by partition
}

// purged is a partition of a purge.
type purged struct {
	index  ident.Index
	before ident.Offset // -1: the high watermark, once it is known
	epoch  ident.Epoch  // in which the leader said that it holds as much
	taken  bool         // it is decided
}

func purgeOf(t *cluster.Topic, before map[ident.Index]ident.Offset) (*purge, error) {
	p := &purge{topic: t}
	if before == nil {
		for i := range t.Partitions {
			p.parts = append(p.parts, &purged{index: t.Partitions[i].Index, before: -1})
		}
		return p, nil
	}
	for _, i := range slices.Sorted(maps.Keys(before)) {
		if _, ok := t.Partition(i); !ok {
			return nil, fault.New(fault.PartitionNotFound, "topic %q has no partition %d", t.Name, i).With("partition", i)
		}
		p.parts = append(p.parts, &purged{index: i, before: before[i]})
	}
	return p, nil
}

// decide asks leaders and the coordinator until everything is decided or the time is over.
// What leaders said counts in their epochs, so where one has moved meanwhile the next one
// is asked.
func (p *purge) decide(ctx context.Context, c control) (index uint64, err error) {
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		err := p.ask(ctx, c)
		if err == nil {
			var open bool
			if index, open, err = p.propose(ctx, c, index); err != nil || !open {
				return index, err
			}
			err = fault.New(fault.LeaderUnavailable, "leaders of topic %q are changing; the same call again goes on where this one ended", p.topic.Name)
		}
		if !fault.Is(err, fault.LeaderUnavailable) || fault.Lasting(err) || !sleep.For(ctx, pause) {
			return 0, err
		}
	}
}

// ask has the leaders say how far their partitions are committed, where that is not
// decided on yet.
func (p *purge) ask(ctx context.Context, c control) error {
	if c.Snapshot().ByID[p.topic.ID] == nil {
		return fault.New(fault.TopicNotFound, "topic %q was deleted", p.topic.Name).With("topic", p.topic.Name)
	}
	var g errgroup.Group
	g.SetLimit(looks)
	for _, part := range p.parts {
		if part.taken {
			continue
		}
		g.Go(func() error {
			b, err := c.router.Bounds(ctx, p.topic.Ref(part.index))
			switch {
			case err != nil:
				return fmt.Errorf("ask the leader of partition %d: %w", part.index, err)
			case part.before < 0:
				part.before = b.HW
			case part.before > b.HW:
				return fault.New(fault.Invalid, "partition %d of topic %q ends at offset %d: nothing below %d can be purged but what is there", part.index, p.topic.Name, b.HW, part.before).
					With("field", "before").With("partition", part.index).With("earliest", b.Start).With("end", b.HW)
			}
			part.epoch = b.Epoch
			return nil
		})
	}
	return g.Wait()
}

// propose brings to the coordinator what it does not know yet. open: some of it was not
// taken.
func (p *purge) propose(ctx context.Context, c control, index uint64) (_ uint64, open bool, err error) {
	known := c.Snapshot().ByID[p.topic.ID]
	change := cluster.Purge{}
	var asked []*purged
	for _, part := range p.parts {
		part.taken = part.taken || begunBehind(known, part.index, part.before)
		if !part.taken {
			asked = append(asked, part)
			change.Of = append(change.Of, cluster.PurgeOf{Partition: p.topic.Ref(part.index), Epoch: part.epoch, Before: part.before})
		}
	}
	if len(asked) == 0 {
		return index, false, nil
	}
	a, err := c.decide(ctx, cluster.Change{Purge: &change})
	if err != nil {
		return index, false, err
	}
	for i, part := range asked {
		part.taken = i < len(a.Taken) && a.Taken[i]
		open = open || !part.taken
	}
	return a.Index, open, nil
}

// begunBehind says that a partition begins at an offset or behind it, whoever leads. That its leader's
// log does is not enough: retention moves each log by itself.
func begunBehind(t *cluster.Topic, i ident.Index, o ident.Offset) bool {
	if t == nil {
		return false
	}
	p, ok := t.Partition(i)
	return ok && p.Unclamped == 0 && p.Purged >= o
}

// begins gives where the partitions begin, once all replicas that serve readers say so or
// the time is over.
func (p *purge) begins(ctx context.Context, c control) []cluster.Position {
	out := make([]cluster.Position, len(p.parts))
	var g errgroup.Group
	g.SetLimit(looks)
	for i, part := range p.parts {
		g.Go(func() error {
			out[i] = cluster.Position{Partition: part.index, Offset: max(part.before, c.begun(ctx, p.topic.Ref(part.index), part.before))}
			return nil
		})
	}
	_ = g.Wait() // none fails
	return out
}

// begun waits for a partition's replicas, and gives where it begins at its leader.
func (c control) begun(ctx context.Context, ref ident.Partition, at ident.Offset) (start ident.Offset) {
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		b, err := c.router.Bounds(ctx, ref)
		if err == nil && b.Start >= at && c.router.Serve(ctx, ref, func(b rpc.Bounds) bool { return b.Start >= at }) {
			return b.Start
		}
		start = max(start, b.Start)
		if !sleep.For(ctx, pause) {
			return start
		}
	}
}

package coordinator

import (
	"context"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/control"
	"tidewire/internal/fault"
)

// What gateways and leaders of partitions ask for consumer groups.

// ServeTouch takes signs of life of groups' members, and names those that are over. Only
// the leading coordinator does.
func (c *Coordinator) ServeTouch(ctx context.Context, signs []cluster.SignOfLife) (cluster.Lost, error) {
	if len(signs) > cluster.MaxSigns {
		return cluster.Lost{}, fault.New(fault.Invalid, "%d signs of life are more than the %d of one call", len(signs), cluster.MaxSigns)
	}
	rule := c.rules.Load()
	if rule == nil {
		return cluster.Lost{}, c.notLeading()
	}
	return rule.touch(ctx, signs)
}

// ServeProgress tells how far groups have come on a partition, from what this coordinator
// has applied, as soon as that has reached the index that is asked for.
func (c *Coordinator) ServeProgress(ctx context.Context, of cluster.ProgressOf) ([]cluster.GroupProgress, error) {
	if len(of.Groups) > cluster.MaxProgress {
		return nil, fault.New(fault.Invalid, "the progress of %d groups is more than that of the %d of one call", len(of.Groups), cluster.MaxProgress)
	}
	return c.machine.progress(ctx, of)
}

// Touch tells the leading coordinator of signs of life, here or elsewhere, in as many
// calls as they need. It is one try: who tells does so again and again.
func (c *Coordinator) Touch(ctx context.Context, signs []cluster.SignOfLife) (cluster.Lost, error) {
	return control.InParts(ctx, signs, func(ctx context.Context, part []cluster.SignOfLife) (cluster.Lost, error) {
		if to, elsewhere := c.elsewhere(); elsewhere {
			tried, cancel := context.WithTimeout(ctx, tryLimit)
			defer cancel()
			return c.cfg.Peers.Touch(tried, to, part)
		}
		return c.ServeTouch(ctx, part)
	})
}

// Progress tells how far groups have come on a partition, as of an index or later: from
// here, or, where this coordinator does not come to it, from the one that leads. It waits
// until ctx or proposeLimit ends.
func (c *Coordinator) Progress(ctx context.Context, of cluster.ProgressOf) ([]cluster.GroupProgress, error) {
	ctx, cancel := context.WithTimeout(ctx, proposeLimit)
	defer cancel()
	for {
		got, err := within(ctx, tryLimit, func(ctx context.Context) ([]cluster.GroupProgress, error) { return c.ServeProgress(ctx, of) })
		if err == nil || control.Judge(err) == control.Final || ctx.Err() != nil {
			return got, err
		}
		if to, elsewhere := c.elsewhere(); elsewhere {
			got, err = within(ctx, tryLimit, func(ctx context.Context) ([]cluster.GroupProgress, error) { return c.cfg.Peers.Progress(ctx, to, of) })
			if err == nil {
				return got, nil
			}
		}
	}
}

func within[T any](ctx context.Context, limit time.Duration, ask func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return ask(ctx)
}

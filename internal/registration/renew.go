package registration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
)

// renew keeps a life's lease until the life is over or ctx ends. A renewal that
// fails is tried again soon: it says nothing about the life.
func (r *Registration) renew(ctx context.Context, life cluster.Life) error {
	every := r.cfg.Lease / 4
	for {
		pause := every - rand.N(every/10)
		switch err := r.again(ctx, life); {
		case errors.Is(err, errOver):
			return err
		case err != nil:
			pause = every / 4
		}
		if err := r.wait(ctx, life, pause); err != nil {
			return err
		}
	}
}

// again makes one renewal.
func (r *Registration) again(ctx context.Context, life cluster.Life) error {
	sent := time.Now()
	limited, cancel := context.WithTimeout(ctx, r.cfg.Lease/2)
	defer cancel()
	lease, err := r.cfg.Coordinator.Renew(limited, cluster.Renewal{Life: life, Full: r.cfg.Full()})
	switch {
	case err == nil:
		leases := r.state.Load().leases.With(time.Now(), sent.Add(lease.For), lease.Index)
		r.state.Store(&standing{life: life, lease: lease, leases: leases})
		return nil
	case fault.Is(err, fault.Fenced):
		return fmt.Errorf("%w: %w", errOver, err)
	}
	r.cfg.Logger.Debug("a lease was not renewed", "err", err)
	return err
}

// wait rests between renewals and watches the feed: it may tell first that the life
// is over.
func (r *Registration) wait(ctx context.Context, life cluster.Life, d time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for {
		s := r.cfg.Coordinator.Snapshot()
		if n := s.Nodes[life.Node]; s.Index >= uint64(life.Epoch) && (n == nil || n.BrokerEpoch != life.Epoch || n.Over()) {
			return fmt.Errorf("%w: the coordinator has declared it so", errOver)
		}
		if _, err := r.cfg.Coordinator.Next(limited, s.Index); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if limited.Err() != nil {
				return nil
			}
			return err
		}
	}
}

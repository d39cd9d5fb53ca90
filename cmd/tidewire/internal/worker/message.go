package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"tidewire/cmd/tidewire/internal/client"
	"tidewire/internal/sleep"
)

// Rejection is the error of a message that is not to come again.
type Rejection struct{ Reason string }

func (r *Rejection) Error() string { return "rejected: " + r.Reason }

var errLost = errors.New("the lease was lost")

// one works on one message, once the one before it has ended, and settles it. It says
// whether the message is done.
func (l *life) one(ctx context.Context, m client.Leased, before <-chan struct{}) bool {
	if ctx.Err() != nil {
		return false
	}
	working, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	var beside sync.WaitGroup
	beside.Go(func() { l.extend(working, m, lost) })
	err := l.after(working, before)
	if err == nil {
		err = l.cfg.Do(working, m)
	}
	cause := context.Cause(working)
	lost(nil)
	beside.Wait()
	if cause != nil {
		l.cfg.Note("partition %d offset %d: %v; it comes again", m.Partition, m.Offset, cause)
		return false
	}
	s := client.Settlement{Member: l.joined.Member, Epoch: l.joined.Epoch}
	place := client.Place{Partition: m.Partition, Offset: m.Offset}
	var rejection *Rejection
	switch {
	case err == nil:
		s.Ack = []client.Place{place}
	case errors.As(err, &rejection):
		s.Reject = []client.Rejected{{Place: place, Reason: rejection.Reason}}
	default:
		s.Nack = []client.Place{place}
	}
	if err != nil {
		l.cfg.Note("partition %d offset %d, delivery %d: %v", m.Partition, m.Offset, m.Delivery, err)
	}
	return l.settle(ctx, m, s) && err == nil
}

func (l *life) after(ctx context.Context, before <-chan struct{}) error {
	if before == nil {
		return nil
	}
	select {
	case <-before:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// page works on messages that are quickly done, and settles them together.
func (l *life) page(ctx context.Context, all []client.Leased) error {
	s := client.Settlement{Member: l.joined.Member, Epoch: l.joined.Epoch}
	var failed error
	for _, m := range all {
		if failed = l.cfg.Each(m); failed != nil {
			break // the rest comes again
		}
		l.begun()
		s.Ack = append(s.Ack, client.Place{Partition: m.Partition, Offset: m.Offset})
	}
	if len(s.Ack) == 0 {
		return failed
	}
	kept := l.settle(ctx, all[0], s)
	for range s.Ack {
		l.ended(kept)
	}
	return failed
}

// extend keeps the lease of a message while it is worked on.
func (l *life) extend(ctx context.Context, m client.Leased, lost context.CancelCauseFunc) {
	lease := max(time.Duration(m.LeaseMS)*time.Millisecond, 10*time.Millisecond)
	kept := time.Now()
	for sleep.For(ctx, lease/3) {
		asked := time.Now()
		stale, err := l.cfg.Server.Settle(ctx, l.cfg.Topic, l.cfg.Group, client.Settlement{
			Member: l.joined.Member, Epoch: l.joined.Epoch, Extend: []client.Place{{Partition: m.Partition, Offset: m.Offset}},
		})
		switch {
		case err == nil && len(stale) == 0:
			kept = asked
		case err == nil: // where the partition is to move the lease stays as it was
			if sleep.For(ctx, time.Until(kept.Add(lease))) {
				lost(errLost)
			}
			return
		case fenced(err), time.Since(kept) >= lease:
			lost(errLost)
			return
		}
	}
}

// settle says what became of messages, m the first of them, until it is heard, the lease is
// over, or the life is. It says whether all of it was taken.
func (l *life) settle(ctx context.Context, m client.Leased, s client.Settlement) bool {
	ctx, cancel := context.WithTimeout(ctx, max(time.Duration(m.LeaseMS)*time.Millisecond, time.Second))
	defer cancel()
	for {
		stale, err := l.cfg.Server.Settle(ctx, l.cfg.Topic, l.cfg.Group, s)
		switch {
		case err == nil && len(stale) == 0:
			return true
		case err == nil:
			l.cfg.Note("partition %d offset %d: not taken: %s; it may come again", stale[0].Partition, stale[0].Offset, stale[0].Reason)
			return false
		case !passing(err) || !sleep.For(ctx, leastPause):
			l.cfg.Note("partition %d offset %d: %v; it may come again", m.Partition, m.Offset, err)
			return false
		}
	}
}

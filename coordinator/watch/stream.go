package watch

import (
	"context"
	"errors"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/feed"
	"tidewire/internal/ident"
)

const (
	// BeatEvery is how often a stream says that nothing has changed.
	BeatEvery = 250 * time.Millisecond
	// DeafAfter ends the streams of a coordinator that has not heard a leader for so
	// long: what it tells may be old, and another may know more.
	DeafAfter = time.Second
)

// Pulse tells who leads the coordinators, and how long ago this one heard it.
type Pulse func() (leader ident.NodeID, heard time.Duration)

// Stream sends a reader, who has the snapshot of index from (0: none), everything
// that comes after, and beats in between. What a slow reader misses is in the next
// message: nothing queues. It returns when ctx ends, send fails, or this coordinator
// has not heard its leader.
func Stream(ctx context.Context, f *feed.Feed, from uint64, pulse Pulse, send func(cluster.Message) error) error {
	has := &cluster.Snapshot{} // what the reader has
	if s := f.Snapshot(); s.Index == from {
		has = s
	}
	for {
		m := cluster.Message{}
		if m.Leader, m.Heard = pulse(); m.Heard > DeafAfter {
			return fault.New(fault.CoordinatorUnavailable, "this coordinator has not heard a leader for %s", m.Heard.Round(time.Millisecond))
		}
		// A reader that has seen more than this coordinator waits for it.
		if s := f.Snapshot(); s.Index > has.Index && s.Index >= from {
			m.News, has = cluster.Between(has, s), s
		}
		m.Index = f.Snapshot().Index
		if err := send(m); err != nil {
			return err
		}
		wait, cancel := context.WithTimeout(ctx, BeatEvery)
		_, err := f.Next(wait, max(has.Index, from-min(from, 1)))
		cancel()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
}

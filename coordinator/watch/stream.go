package watch

import (
	"context"
	"errors"
	"iter"
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
// that comes after, in parts of a bounded size, and beats in between. What a slow reader
// misses is in the next news: nothing queues, and all that is held for it is the part
// under way and a mark of what it has. It returns when ctx ends, send fails, or this
// coordinator has not heard its leader.
func Stream(ctx context.Context, f *feed.Feed, from uint64, pulse Pulse, send func(cluster.Message) error) error {
	has := cluster.Mark{Index: from} // what the reader has
	for {
		news, now := since(f, has)
		for part := range news {
			m := cluster.Message{News: part, Index: now.Index}
			if m.Leader, m.Heard = pulse(); m.Heard > DeafAfter {
				return fault.New(fault.CoordinatorUnavailable, "this coordinator has not heard a leader for %s", m.Heard.Round(time.Millisecond))
			}
			if err := send(m); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
		has = now
		if err := rest(ctx, f, has.Index); err != nil {
			return err
		}
	}
}

// since gives what a reader lacks, or one beat, and what it has then. It keeps no
// snapshot: those that readers are slow to take would add up.
func since(f *feed.Feed, has cluster.Mark) (iter.Seq[*cluster.Delta], cluster.Mark) {
	s := f.Snapshot()
	if s.Index <= has.Index { // a reader that has seen more waits for this coordinator
		return func(yield func(*cluster.Delta) bool) { yield(nil) }, has
	}
	return s.Since(has).Parts(), s.Mark()
}

// rest waits for news, or until a beat is due.
func rest(ctx context.Context, f *feed.Feed, has uint64) error {
	wait, cancel := context.WithTimeout(ctx, BeatEvery)
	defer cancel()
	_, err := f.Next(wait, has)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

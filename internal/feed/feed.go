package feed

import (
	"context"
	"sync"

	"tidewire/internal/cluster"
)

// Feed carries snapshots from the one goroutine that applies commands to any
// number of readers.
type Feed struct {
	mu      sync.Mutex
	latest  *cluster.Snapshot
	changed chan struct{} // closed when latest is replaced
}

// New is a feed whose first snapshot is empty, at index 0.
func New() *Feed {
	return &Feed{latest: &cluster.Snapshot{}, changed: make(chan struct{})}
}

// Publish replaces the latest snapshot, unless s is no newer: no reader ever
// sees an older index than it has seen.
func (f *Feed) Publish(s *cluster.Snapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.Index <= f.latest.Index {
		return
	}
	f.latest = s
	close(f.changed)
	f.changed = make(chan struct{})
}

// Snapshot is the latest there is; never nil.
func (f *Feed) Snapshot() *cluster.Snapshot {
	s, _ := f.now()
	return s
}

// Next waits for a snapshot whose index is above after and returns the latest.
func (f *Feed) Next(ctx context.Context, after uint64) (*cluster.Snapshot, error) {
	for {
		s, changed := f.now()
		if s.Index > after {
			return s, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (f *Feed) now() (*cluster.Snapshot, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.latest, f.changed
}

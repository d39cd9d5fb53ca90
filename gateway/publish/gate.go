package publish

import (
	"container/list"
	"context"
	"sync"
	"time"

	"tidewire/internal/pace"
)

// gate lets records in by their bytes, in the order they came, while no more is
// under way than the leaders take in good time. Where a disk is slow that is
// much less than memory would hold: what cannot be kept in time had better stay
// with its client, who is not read from meanwhile.
type gate struct {
	mu    sync.Mutex
	pace  *pace.Pace
	busy  int64
	queue list.List // of *entrant, oldest first
}

// entrant waits at the gate. ready is closed once it is in.
type entrant struct {
	bytes int64
	ready chan struct{}
}

// enter waits until n bytes are in, or until ctx ends.
func (g *gate) enter(ctx context.Context, n int64) error {
	e := &entrant{n, make(chan struct{})}
	g.mu.Lock()
	place := g.queue.PushBack(e)
	g.admitLocked()
	g.mu.Unlock()
	select {
	case <-e.ready:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-e.ready: // just now
		return nil
	default:
	}
	g.queue.Remove(place)
	g.admitLocked() // a smaller one behind may fit
	return context.Cause(ctx)
}

// tryEnter lets n bytes in if that needs no waiting.
func (g *gate) tryEnter(n int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.queue.Len() > 0 || !g.pace.Admits(g.busy, n) {
		return false
	}
	g.busy += n
	return true
}

// leave lets n bytes out.
func (g *gate) leave(n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy -= n
	g.admitLocked()
}

// taken tells how long it was until a leader was done with n bytes; they have
// still to leave.
func (g *gate) taken(n int64, waited time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pace.Taken(time.Now(), n, waited)
	g.admitLocked()
}

func (g *gate) admitLocked() {
	for front := g.queue.Front(); front != nil; front = g.queue.Front() {
		e := front.Value.(*entrant)
		if !g.pace.Admits(g.busy, e.bytes) {
			return
		}
		g.busy += e.bytes
		close(e.ready)
		g.queue.Remove(front)
	}
}

// limit is the number of bytes that may be under way now.
func (g *gate) limit() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pace.Limit()
}

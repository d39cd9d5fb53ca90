package publish

import (
	"context"
	"sync"
	"time"

	"tidewire/gateway/queue"
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
	queue *queue.Queue
}

func newGate(b pace.Bounds) *gate {
	g := &gate{pace: pace.New(b)}
	g.queue = queue.New(&g.mu, g.admit)
	return g
}

// admit lets n bytes in where there is room for them.
func (g *gate) admit(n int64) bool {
	if !g.pace.Admits(g.busy, n) {
		return false
	}
	g.busy += n
	return true
}

// enter waits until n bytes are in, or until ctx ends.
func (g *gate) enter(ctx context.Context, n int64) error { return g.queue.Wait(ctx, n) }

// tryEnter lets n bytes in if that needs no waiting.
func (g *gate) tryEnter(n int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.queue.Empty() && g.admit(n)
}

// leave lets n bytes out.
func (g *gate) leave(n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy -= n
	g.queue.Admit()
}

// taken tells how long it was until a leader was done with n bytes; they have
// still to leave.
func (g *gate) taken(n int64, waited time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pace.Taken(time.Now(), n, waited)
	g.queue.Admit()
}

// limit is the number of bytes that may be under way now.
func (g *gate) limit() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pace.Limit()
}

package memgroup

import (
	"context"
	"sync"
	"time"

	"tidewire/internal/rpc"
)

// lookout is a Take of nothing whose caller looks himself.
type lookout struct {
	b     *Broker
	take  rpc.Take
	leave context.CancelFunc
	tells sync.WaitGroup
}

// Lookout begins one. Where calls fail there is none.
func (b *Broker) Lookout(t rpc.Take, poke chan struct{}) rpc.Lookout {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fails[b.node] != nil {
		return nil
	}
	ctx, leave := context.WithCancel(context.Background())
	l := &lookout{b: b, take: t, leave: leave}
	l.tells.Go(func() { b.tell(ctx, t, poke) })
	return l
}

// tell leaves word whenever something may have changed, until ctx ends.
func (b *Broker) tell(ctx context.Context, t rpc.Take, poke chan<- struct{}) {
	for {
		b.mu.Lock()
		changed := b.changed
		b.mu.Unlock()
		var logs <-chan struct{}
		for _, p := range t.Partitions { // as in Take
			if bounds, err := b.log.Bounds(ctx, p); err == nil && logs == nil {
				logs, _ = b.log.Wait(p, bounds.HW)
			}
		}
		select { // what came before this round began is told, too
		case poke <- struct{}{}:
		default:
		}
		again := time.NewTimer(20 * time.Millisecond)
		select {
		case <-changed:
		case <-logs:
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return
		}
		again.Stop()
	}
}

// Look is of rpc.Lookout.
func (l *lookout) Look() (rpc.Taken, bool) {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	out, _, err := l.b.takeLocked(context.Background(), l.take)
	if err != nil {
		for _, ref := range l.take.Partitions {
			out.Of = append(out.Of, rpc.TakenOf{Partition: ref, Err: err})
		}
		return out, true
	}
	return out, out.More
}

// Leave is of rpc.Lookout.
func (l *lookout) Leave() {
	l.leave()
	l.tells.Wait()
}

package groups

import (
	"context"
	"sync"
)

// tasks are goroutines that begin while Run runs, and end with it.
type tasks struct {
	wake chan struct{} // has one entry when there is one to begin

	mu   sync.Mutex
	next []func(context.Context)
}

// add has a function run, as soon as Run does.
func (t *tasks) add(f func(context.Context)) {
	t.mu.Lock()
	t.next = append(t.next, f)
	t.mu.Unlock()
	nudge(t.wake)
}

func (t *tasks) run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.wake:
		}
		t.mu.Lock()
		some := t.next
		t.next = nil
		t.mu.Unlock()
		for _, f := range some {
			running.Go(func() { f(ctx) })
		}
	}
}

// nudge leaves word in a channel with room for one.
func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

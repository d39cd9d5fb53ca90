package activity

import (
	"context"
	"errors"
	"sync"
	"testing"
)

// Start runs an activity until the test ends, which waits for it. It fails the
// test if the activity fails; to be told to end is no failure.
func Start(t testing.TB, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := run(ctx); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("an activity ended: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
}

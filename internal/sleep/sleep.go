// Package sleep waits for time to pass, and no longer than anybody wants it to.
package sleep

import (
	"context"
	"time"
)

// For waits for d, or until ctx ends. It says whether ctx goes on: whether there is time
// left for what was waited for.
func For(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

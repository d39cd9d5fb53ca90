package sleep

import (
	"context"
	"time"
)

// Alarm calls look now, whenever it is woken and at the time that look gave last, until
// ctx ends. The zero time is never.
func Alarm(ctx context.Context, wake <-chan struct{}, look func(now time.Time) time.Time) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-wake:
		}
		timer.Stop()
		if at := look(time.Now()); !at.IsZero() {
			timer.Reset(time.Until(at))
		}
	}
}

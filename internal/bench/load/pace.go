package load

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"
)

// longestNap bounds how late a pacer notices that it is to end.
const longestNap = 20 * time.Millisecond

// pace lets the messages of an open loop leave when they are due, lane after
// lane. It has a thread of its own: the runtime's timers are good to a
// millisecond, and a message of 10,000 a second is due every tenth of one.
func pace(ctx context.Context, k *clock, due *atomic.Int64, lanes []*lane) error {
	runtime.LockOSThread() // and not unlocked: its precision ends with it
	sharpen()
	plan := k.plan.Load()
	for sent := int64(0); ctx.Err() == nil; {
		now := k.now()
		n := plan.due(now)
		if n == sent {
			nap(min(time.Duration(plan.when(n)-now), longestNap))
			continue
		}
		due.Store(n)
		for i := range min(n-sent, int64(len(lanes))) {
			if err := lanes[(sent+i)%int64(len(lanes))].pump(now); err != nil {
				return err
			}
		}
		sent = n
	}
	return nil
}

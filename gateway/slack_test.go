package gateway

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestMemoryIsGivenBackOnceAStormIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turnover atomic.Uint64
		var given atomic.Int32
		s := newSlack(turnover.Load)
		s.free = func() { given.Add(1) }
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = s.run(ctx) }()
		defer synctest.Wait()
		defer cancel()
		for _, step := range []struct {
			come  uint64
			given int
			what  string
		}{
			{0, 0, "nobody has come"},
			{900, 0, "many come"},
			{90, 0, "it is calm, and there were too few"},
			{2000, 0, "a storm"},
			{500, 0, "it goes on"},
			{50, 1, "it is over"},
			{0, 1, "all is given back already"},
			{slackStorm, 1, "they go"},
			{0, 2, "they have gone"},
		} {
			turnover.Add(step.come)
			time.Sleep(slackEvery)
			synctest.Wait()
			if int(given.Load()) != step.given {
				t.Errorf("%s: memory was given back %d times, not %d", step.what, given.Load(), step.given)
			}
		}
		time.Sleep(time.Minute)
		if synctest.Wait(); given.Load() != 3 {
			t.Errorf("memory was given back %d times, not once more after the first pings", given.Load())
		}
		time.Sleep(time.Hour)
		if synctest.Wait(); given.Load() != 4 {
			t.Errorf("memory was given back %d times in the end", given.Load())
		}
	})
}

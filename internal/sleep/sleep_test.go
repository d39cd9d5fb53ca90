package sleep_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/internal/sleep"
)

func TestASleepEndsWithItsTimeOrItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !sleep.For(t.Context(), time.Second) || time.Since(began) != time.Second {
			t.Errorf("a sleep of a second took %v", time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if sleep.For(ctx, time.Minute) || time.Since(began) != time.Second {
			t.Errorf("a sleep went on for %v after its context", time.Since(began)-time.Second)
		}
		if sleep.For(ctx, 0) {
			t.Error("there is time left after the end")
		}
	})
}

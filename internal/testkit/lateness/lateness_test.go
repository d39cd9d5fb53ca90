package lateness_test

import (
	"testing"
	"testing/synctest"
	"time"

	"tidewire/internal/testkit/lateness"
)

// In a bubble nothing is ever late.
func TestWhoIsInTimeIsNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ends := lateness.Measure()
		time.Sleep(time.Second)
		if late := ends(); late != 0 {
			t.Errorf("late by %s", late)
		}
	})
}

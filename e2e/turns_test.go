package e2e_test

import (
	"runtime"
	"testing"
	"time"

	"tidewire/e2e/harness"
)

// All tests run beside others, most of which wait for something. Those that keep the
// machine busy take turns, as many at a time as there are cores: more would tell of the
// machine what is asked of the nodes.

// busy is for tests that put a cluster under load.
func busy(t *testing.T) {
	t.Helper()
	t.Parallel()
	takeTurn(t)
}

// timed is for tests that also hold what happens under load to bounds of time. Those of
// make soak are for a machine that does nothing else: there one runs after the other.
func timed(t *testing.T) {
	t.Helper()
	if !harness.Soak() {
		busy(t)
	}
}

// beside is timed for tests that hardly load the machine.
func beside(t *testing.T) {
	t.Helper()
	if !harness.Soak() {
		t.Parallel()
	}
}

var turns = make(chan struct{}, runtime.NumCPU())

// takeTurn waits until it is the test's turn, which ends with it.
func takeTurn(t *testing.T) {
	t.Helper()
	began := time.Now()
	turns <- struct{}{}
	t.Cleanup(func() { <-turns })
	t.Logf("%s of its time it waited for its turn", time.Since(began).Round(time.Millisecond))
}

package harness

import (
	"testing"
	"time"
)

// Await asks until the answer is yes. What a process of its own does cannot be
// waited for in any other way; the bound is generous, because it is only
// reached by a test that fails.
func Await(t testing.TB, bound time.Duration, what string, yes func() bool) {
	t.Helper()
	deadline := time.Now().Add(bound)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !yes() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", bound, what)
		}
		<-tick.C
	}
}

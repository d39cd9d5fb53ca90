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
	await(t, bound, func() time.Duration { return 0 }, what, yes)
}

// Await is Await for what a cluster does within a bound: what the machine kept its
// processes waiting is not of it.
func (c *Cluster) Await(bound time.Duration, what string, yes func() bool) {
	c.t.Helper()
	await(c.t, bound, c.Starved(), what, yes)
}

func await(t testing.TB, bound time.Duration, starved func() time.Duration, what string, yes func() bool) {
	t.Helper()
	began := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !yes() {
		if time.Since(began) > bound && time.Since(began) > bound+starved() {
			t.Fatalf("not within %s: %s", bound, what)
		}
		<-tick.C
	}
}

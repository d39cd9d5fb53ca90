package e2e_test

import (
	"slices"
	"testing"
	"time"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
)

// TestAPausedLeaderReturns stops a leader where it is for longer than its lease,
// and lets it go on as if no time had passed: others lead by then, and what it
// still believes counts for nothing. The long form does the same to the leading
// coordinator.
func TestAPausedLeaderReturns(t *testing.T) {
	timed(t)
	c := harness.StartCluster(t, harness.ClusterOptions{})
	coordinator := c.CoordinatorLeader()
	victims, silent := c.Others(coordinator)[:1], 6*time.Second
	if harness.Soak() {
		victims, silent = append(victims, coordinator), 15*time.Second
	}
	o := largeCrew("pauses")
	o.at = func(m *harness.Member) bool { return !slices.Contains(victims, m) } // clients of their gateways wait with them
	w := startCrew(t, c, o)
	for _, victim := range victims {
		w.inside(victim, 6) // and these do
	}
	for _, victim := range victims {
		c.AwaitSpread(patience, "pauses")
		w.awaitEach(5)
		led, others := leadBy(victim.Name)
		s := w.begin("SIGSTOP of %s for %s", victim.Name, silent)
		victim.Pause()
		paused := time.Now()
		w.awaitTruth(victim, "dead")
		// What it answers and pushes once it goes on is of an epoch that is over.
		c.AwaitTopic(patience, "pauses", "others lead", func(info client.TopicInfo) bool {
			return !slices.ContainsFunc(info.Layout.Partitions, func(p client.PartitionInfo) bool {
				return p.Leader == "" || p.Leader == victim.Name || slices.Contains(p.ISR, victim.Name)
			})
		}, victim)
		s.end(class{"leader paused", led, fellSilent}, class{"follower paused", others, fellSilentLagged})
		pause(t.Context(), silent-time.Since(paused))
		s = w.begin("SIGCONT of %s", victim.Name)
		victim.Continue()
		w.awaitTruth(victim, "alive")
		c.AwaitWhole(patience, "pauses")
		s.end(class{"all partitions", anyPartition, lostFollower})
	}
	w.finish()
	w.identical()
}

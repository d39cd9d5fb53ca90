package e2e_test

import (
	"slices"
	"testing"
	"time"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
)

// Bounds of the longest wait of a producer where a node dies, by what its
// partition lost with it.
const (
	lostFollower     = 500 * time.Millisecond
	lostLeader       = 2 * time.Second
	alsoCoordinator  = time.Second // the same, where the leading coordinator died with it
	handedOver       = 300 * time.Millisecond
	fellSilent       = 3 * time.Second // a leader that is paused or cut off
	fellSilentLagged = 2500 * time.Millisecond
)

// anyPartition is the class of all.
func anyPartition(string) bool { return true }

// TestEachNodeIsKilledInTurn kills one node after the other under load, and wants
// every write to be kept, in time, and every subscriber to see all of it.
func TestEachNodeIsKilledInTurn(t *testing.T) {
	timed(t)
	rounds := 1
	if harness.Soak() {
		rounds = 3
	}
	c := harness.StartCluster(t, harness.ClusterOptions{})
	w := startCrew(t, c, largeCrew("kills"))
	for range rounds {
		for _, m := range c.Members {
			c.AwaitSpread(patience, "kills")
			coordinates := c.CoordinatorLeader() == m
			led, others := leadBy(m.Name)
			leaderIn, followerIn, what := lostLeader, lostFollower, "kill -9 of "+m.Name
			if coordinates {
				leaderIn, followerIn, what = leaderIn+alsoCoordinator, followerIn+alsoCoordinator, what+", the leading coordinator"
			}
			s := w.begin("%s", what)
			m.Kill()
			w.awaitTruth(m, "dead")
			info := c.AwaitTopic(patience, "kills", "others lead", func(info client.TopicInfo) bool {
				return !slices.ContainsFunc(info.Layout.Partitions, func(p client.PartitionInfo) bool {
					return p.Leader == "" || p.Leader == m.Name || slices.Contains(p.ISR, m.Name)
				})
			}, m)
			s.end(class{"leader lost", led, leaderIn}, class{"follower lost", others, followerIn})
			if n := len(harness.Led(info, m.Name)); n > 0 {
				t.Errorf("%s is dead and leads %d partitions", m.Name, n)
			}
			s = w.begin("%s returns", m.Name)
			c.Run(m)
			w.awaitTruth(m, "alive")
			c.AwaitWhole(patience, "kills")
			s.end(class{"all partitions", anyPartition, lostFollower})
		}
	}
	w.finish()
	w.identical()
}

// TestAllNodesAreKilledAtOnce ends every process of a cluster in the same moment,
// again and again, as a power cut does.
func TestAllNodesAreKilledAtOnce(t *testing.T) {
	timed(t)
	rounds := 2
	if harness.Soak() {
		rounds = 10
	}
	const writable = 10 * time.Second
	c := harness.StartCluster(t, harness.ClusterOptions{})
	o := largeCrew("blackouts")
	o.readers /= 2
	o.mayRefuse = func(code, _ string) bool {
		return slices.Contains([]string{"leader-unavailable", "not-enough-replicas", "coordinator-unavailable", "unknown-outcome"}, code)
	}
	w := startCrew(t, c, o)
	for round := range rounds {
		w.awaitEach(10)
		c.KillAll()
		started, starved := time.Now(), c.Starved()
		c.Run(c.Members...)
		ready := time.Since(started)
		w.awaitEach(1)
		took := time.Since(started)
		t.Logf("blackout %d: all ready %s after the start, every partition written to after %s", round+1, ready.Round(time.Millisecond), took.Round(time.Millisecond))
		if most := slack(writable) + starved(); took > most {
			w.late.add("blackout %d: every partition was written to after %s, %s at most is allowed; load %s", round+1, took, most, harness.Load())
		}
		for _, m := range c.Members {
			w.awaitTruth(m, "alive")
		}
		c.AwaitNodes(patience, "all are alive", func(info client.NodesInfo) bool {
			return len(info.Nodes) == len(c.Members) && !slices.ContainsFunc(info.Nodes, func(n client.NodeInfo) bool { return n.State != "alive" })
		})
	}
	w.finish()
	w.identical()
}

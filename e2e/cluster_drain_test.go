package e2e_test

import (
	"testing"
	"time"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
)

// TestEachNodeIsDrainedInTurn drains one node after the other by the command, and
// takes each drain back: nothing fails, hardly anything waits, and the node has
// neither leaders nor clients meanwhile.
func TestEachNodeIsDrainedInTurn(t *testing.T) {
	timed(t)
	c := harness.StartCluster(t, harness.ClusterOptions{})
	w := startCrew(t, c, largeCrew("drains"))
	inTurn := c.Members
	if !harness.Soak() {
		inTurn = []*harness.Member{c.CoordinatorLeader()}
	}
	for _, m := range inTurn {
		c.AwaitSpread(patience, "drains")
		led, others := leadBy(m.Name)
		s := w.begin("drain of %s", m.Name)
		stdout, stderr, code := c.Others(m)[0].CLI(t.Context(), nil, "drain", m.Name, "--wait", "--timeout", patience.String())
		if code != 0 {
			t.Fatalf("drain: exit %d: %s%s", code, stdout, stderr)
		}
		w.awaitTruth(m, "draining")
		s.end(class{"leader drained", led, handedOver}, class{"follower drained", others, handedOver})
		info := w.info()
		if led := harness.Led(info, m.Name); len(led) > 0 {
			t.Errorf("%s is drained and leads %v: %s", m.Name, led, harness.Standing(info))
		}
		ready := m.Has("gateway") && readyStatus(t, m) == 200
		if ready {
			t.Errorf("%s is drained and says that it is ready", m.Name)
		}
		s = w.begin("%s is drained no more", m.Name)
		if stdout, stderr, code := c.Others(m)[0].CLI(t.Context(), nil, "drain", m.Name, "--cancel"); code != 0 {
			t.Fatalf("drain --cancel: exit %d: %s%s", code, stdout, stderr)
		}
		w.awaitTruth(m, "alive")
		c.AwaitSpread(patience, "drains")
		s.end(class{"all partitions", anyPartition, handedOver})
	}
	w.finish()
	w.identical()
}

func readyStatus(t *testing.T, m *harness.Member) int {
	t.Helper()
	ans, err := client.New(m.URL).Do(t.Context(), "GET", "/readyz", "", "")
	if err != nil {
		t.Fatal(err)
	}
	return ans.Status
}

// TestARollingRestart stops each node with SIGTERM and starts it again, as an
// upgrade does.
func TestARollingRestart(t *testing.T) {
	timed(t)
	c := harness.StartCluster(t, harness.ClusterOptions{})
	w := startCrew(t, c, largeCrew("rolling"))
	for _, m := range c.Members {
		c.AwaitSpread(patience, "rolling")
		led, others := leadBy(m.Name)
		s := w.begin("SIGTERM of %s", m.Name)
		begin := time.Now()
		if err := m.Stop(); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
		t.Logf("%s stopped in %s", m.Name, time.Since(begin).Round(time.Millisecond))
		w.awaitTruth(m, "dead")
		s.end(class{"leader stopped", led, handedOver}, class{"follower stopped", others, handedOver})
		s = w.begin("%s returns", m.Name)
		c.Run(m)
		w.awaitTruth(m, "alive")
		c.AwaitWhole(patience, "rolling")
		s.end(class{"all partitions", anyPartition, handedOver})
	}
	w.finish()
	w.identical()
}

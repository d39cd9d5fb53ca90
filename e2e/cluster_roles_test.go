package e2e_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
)

// decidesIn is how soon something new is decided again once the coordinators are back.
const decidesIn = 3 * time.Second

// TestDataFlowsWithoutCoordinators runs coordinators and brokers as processes of
// their own and takes all coordinators away: what is there is written and read as
// before, what needs a decision is refused, and decided soon after they return.
func TestDataFlowsWithoutCoordinators(t *testing.T) {
	timed(t)
	c := harness.NewCluster(t, harness.ClusterOptions{Roles: sixNodes()})
	t.Logf("six nodes formed a cluster in %s", c.Form().Round(time.Millisecond))
	o := largeCrew("settled")
	o.readers /= 2
	w := startCrew(t, c, o)
	c.AwaitNodes(slack(truthIn), "six nodes with their roles", func(info client.NodesInfo) bool {
		for _, m := range c.Members {
			x, ok := info.Find(m.Name)
			if !ok || x.State != "alive" || !slices.Equal(x.Roles, m.Roles) {
				return false
			}
		}
		return len(info.Nodes) == len(c.Members)
	})
	coordinators := c.With("coordinator")

	s := w.begin("the leading coordinator is killed")
	leader := c.CoordinatorLeader()
	leader.Kill()
	c.CoordinatorLeader(leader)
	w.awaitTruth(leader, "dead")
	s.end(class{"all partitions", anyPartition, handedOver})
	c.Run(leader)
	c.AwaitState(slack(truthIn), leader, "alive")

	s = w.begin("all coordinators are killed")
	for _, m := range coordinators {
		m.Kill()
	}
	gone := time.Now()
	for time.Since(gone) < whileCut(2*time.Second) {
		w.awaitEach(10)
	}
	s.end(class{"all partitions", anyPartition, handedOver})
	for _, m := range coordinators {
		w.awaitTruth(m, "suspect") // nobody is there to decide that they are dead
	}
	ans := createTopic(t, c, "undecided")
	if problem, err := ans.Problem(); err != nil || problem.Code != "coordinator-unavailable" {
		t.Errorf("a topic was asked for without coordinators: %d %s (%v)", ans.Status, ans.Body, err)
	}

	s = w.begin("all coordinators return")
	for _, m := range coordinators {
		if err := m.Begin(); err != nil {
			t.Fatal(err)
		}
	}
	back, starved := time.Now(), c.Starved()
	for n := 0; ; n++ {
		ans := createTopic(t, c, fmt.Sprintf("decided-%d", n))
		if ans.Status == 201 {
			break
		}
		if time.Since(back) > patience {
			t.Fatalf("no topic could be created %s after the coordinators were started: %s", time.Since(back), ans.Body)
		}
	}
	took := time.Since(back)
	t.Logf("a topic was created %s after the coordinators were started", took.Round(time.Millisecond))
	if most := slack(decidesIn) + starved(); took > most {
		w.late.add("the first topic was created %s after the coordinators were started, %s at most is allowed; load %s", took, most, harness.Load())
	}
	c.AwaitReady(coordinators...)
	for _, m := range coordinators {
		w.awaitTruth(m, "alive")
	}
	s.end(class{"all partitions", anyPartition, handedOver})
	w.finish()
	w.identical()
}

// createTopic asks for a topic and gives the answer, whatever it is.
func createTopic(t *testing.T, c *harness.Cluster, name string) client.Answer {
	t.Helper()
	ans, err := c.API().Do(t.Context(), "POST", "/topics/", "application/json", `{"name":"`+name+`"}`)
	if err != nil {
		t.Fatal(err)
	}
	return ans
}

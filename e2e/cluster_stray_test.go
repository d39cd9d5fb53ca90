package e2e_test

import (
	"testing"
	"time"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
)

// TestAStrayCoordinatorFoundsNothingAndStopsNobody has three new nodes meet a
// coordinator of another cluster, the rest of which is gone: they wait for it as long as
// it is there, and found their own cluster when it is not.
func TestAStrayCoordinatorFoundsNothingAndStopsNobody(t *testing.T) {
	t.Parallel()
	former := harness.StartCluster(t, harness.ClusterOptions{Roles: []string{"coordinator", "coordinator", "gateway,broker,coordinator"}})
	stray := former.Members[2]
	former.Members[0].Kill()
	former.Members[1].Kill()
	awaitReadiness(t, stray, 200, "no coordinator has been heard")

	c := harness.NewCluster(t, harness.ClusterOptions{Args: []string{"--join", stray.Listeners["gossip"]}})
	for _, m := range c.Members {
		if err := m.Begin(); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Listening("gossip"); err != nil {
			t.Fatal(err)
		}
	}
	pause(t.Context(), 3*time.Second) // it is there
	stray.Kill()
	c.AwaitReady(c.Members...)
	if info, err := client.New(c.Members[0].URL).TryNodes(t.Context()); err != nil || len(info.Nodes) != 3 {
		t.Errorf("%+v, %v", info, err)
	}
}

package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"tidewire/e2e/harness"
)

// idleGroups is how many groups without members there are, and what of a core a node may
// use with them at rest. The short form shares its machine with other tests: it
// finds what is done for each group over and over, and no more.
func idleGroups() (groups int, share float64) {
	if harness.Soak() {
		return 10_000, 0.03
	}
	return 1_000, 0.3
}

// atRest is what of a core each node uses in a while, and the entries of Raft's log
// meanwhile. Of a soak it is the least of four: what is done again and again is in each, a
// snapshot of the coordinator's is not.
func atRest(t *testing.T, c *harness.Cluster) (shares []float64, entries float64) {
	t.Helper()
	shares, entries = restingShares(t, c)
	if !harness.Soak() {
		return shares, entries
	}
	for range 3 {
		more, n := restingShares(t, c)
		for i := range shares {
			shares[i] = min(shares[i], more[i])
		}
		entries = max(entries, n)
	}
	return shares, entries
}

func restingShares(t *testing.T, c *harness.Cluster) (shares []float64, entries float64) {
	t.Helper()
	const span = 10 * time.Second
	cpu := make([]time.Duration, len(c.Members))
	first := c.Members[0].Metric("coordinator_raft_log_index")
	for i, m := range c.Members {
		cpu[i] = m.CPU()
	}
	ctx, cancel := context.WithTimeout(t.Context(), span)
	defer cancel()
	began := time.Now()
	<-ctx.Done()
	for i, m := range c.Members {
		shares = append(shares, float64(m.CPU()-cpu[i])/float64(time.Since(began)))
	}
	return shares, c.Members[0].Metric("coordinator_raft_log_index") - first
}

// TestIdleGroupsAreCheap registers groups that nobody works for: what they cost at rest.
func TestIdleGroupsAreCheap(t *testing.T) {
	beside(t)
	c := harness.StartCluster(t, harness.ClusterOptions{})
	api := c.API()
	api.CreateTopic(t, "work", `"partitions":1,"replicas":3`)
	groups, most := idleGroups()
	without, _ := atRest(t, c)
	memory := make([]int64, len(c.Members))
	for i, m := range c.Members {
		memory[i] = m.RSS()
	}
	began := time.Now()
	all, ctx := errgroup.WithContext(t.Context())
	all.SetLimit(scaleWorkers)
	for i := range groups {
		all.Go(func() error {
			status, err := api.RegisterGroup(ctx, "work", fmt.Sprintf("g%05d", i), "")
			if err == nil && status != http.StatusCreated {
				err = fmt.Errorf("group %d: status %d", i, status)
			}
			return err
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("registered %d groups in %s", groups, time.Since(began).Round(time.Millisecond))
	harness.Await(t, patience, "every node knows all groups", func() bool {
		for _, m := range c.Members {
			if m.Metric("coordinator_groups") != float64(groups) {
				return false
			}
		}
		return true
	})

	with, entries := atRest(t, c)
	for i, m := range c.Members {
		each := (m.RSS() - memory[i]) / int64(groups)
		t.Logf("%s: %.2f%% of a core, %.2f%% without groups; %d bytes of memory a group (%d MB of 50,000)", m.Name, 100*with[i], 100*without[i], each, each*50_000/1_000_000)
		if with[i] > most {
			t.Errorf("%s: %.2f%% of a core with %d idle groups, more than %.0f%%", m.Name, 100*with[i], groups, 100*most)
		}
	}
	// What a cluster says of itself now and then; nothing of a group.
	if entries > 20 {
		t.Errorf("%.0f Raft entries in 10 s with groups that nobody works for", entries)
	}
}

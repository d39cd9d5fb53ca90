package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
)

// alertIn is how soon an alert shows what happened, and how soon it is over.
const alertIn = 3 * time.Second

// TestEveryNodeTellsTheTruth lets something happen to a node in every way there is,
// and measures at each other node how long its list of nodes, the command nodes and its
// alerts take to tell: one that is asked elsewhere learns the same, as soon.
func TestEveryNodeTellsTheTruth(t *testing.T) {
	beside(t)
	for _, x := range []struct {
		name  string
		roles []string
	}{
		{"three nodes that do everything", nil},
		{"coordinators by themselves", sixNodes()},
	} {
		t.Run(x.name, func(t *testing.T) {
			beside(t)
			c := harness.StartCluster(t, harness.ClusterOptions{Roles: x.roles, Links: true})
			c.API().CreateTopic(t, "truth", `"partitions":6`)
			c.AwaitSpread(patience, "truth")
			leader := c.CoordinatorLeader()
			other := c.Others(append([]*harness.Member{leader}, c.Members[:len(c.Members)-3]...)...)[0]
			victims := []*harness.Member{other}
			if x.roles != nil {
				victims[0] = leader // that of the other kind is soaked
			}
			if harness.Soak() {
				victims = []*harness.Member{other, leader}
			}
			for _, victim := range victims {
				for _, e := range []struct {
					name  string
					begin func()
					state string
					end   func()
				}{
					{"kill -9", victim.Kill, "dead", func() { c.Run(victim) }},
					{"a pause", victim.Pause, "dead", victim.Continue},
					{"a cut from all others", func() { c.Links.Isolate(victim.Name) }, "dead", c.Links.Heal},
					{"a drain", func() { drain(t, c, victim, false) }, "draining", func() { drain(t, c, victim, true) }},
				} {
					tell(t, c, victim, e.name, e.begin, e.state, e.state == "dead")
					tell(t, c, victim, "the end of "+e.name, e.end, "alive", false)
					c.AwaitWhole(patience, "truth")
				}
			}
		})
	}
}

// TestGatewaysWithoutCoordinators takes all coordinators from brokers with gateways: each
// of them says so, and is ready all the same, for no other would serve better. One that
// is cut off alone says that it is not ready.
func TestGatewaysWithoutCoordinators(t *testing.T) {
	beside(t)
	c := harness.StartCluster(t, harness.ClusterOptions{Roles: sixNodes(), Links: true})
	c.API().CreateTopic(t, "deaf", `"partitions":3`)
	gateways := c.With("gateway")
	alone := gateways[0]
	for _, m := range gateways {
		list, raw, err := client.New(m.URL).TryAlerts(t.Context())
		if err != nil || slices.ContainsFunc(list, func(a client.Alert) bool { return a.State == "firing" }) { // what is over by now was the start
			t.Errorf("%s: all is well, and it tells of %s (%v)", m.Name, raw, err)
		}
	}

	c.Links.Isolate(alone.Name)
	awaitReadiness(t, alone, 503, "coordinator-unavailable")
	for _, m := range gateways[1:] {
		awaitReadiness(t, m, 200, `{"status":"ready"}`)
	}
	if info, err := client.New(alone.URL).TryNodes(t.Context()); err != nil {
		t.Error(err)
	} else {
		for _, n := range info.Nodes {
			if n.Name != alone.Name && n.State == "alive" {
				t.Errorf("%s hears nobody, and calls %s alive", alone.Name, n.Name)
			}
		}
	}
	c.Links.Heal()
	awaitReadiness(t, alone, 200, `{"status":"ready"}`)

	// It hears the coordinators that do not lead, and has no lease: others lead.
	c.Links.Cut(alone.Name, c.CoordinatorLeader().Name)
	awaitReadiness(t, alone, 503, "leader-unavailable")
	for _, m := range gateways[1:] {
		awaitReadiness(t, m, 200, `{"status":"ready"}`)
	}
	c.Links.Heal()
	awaitReadiness(t, alone, 200, `{"status":"ready"}`)
	c.AwaitWhole(patience, "deaf")

	coordinators := c.With("coordinator")
	began := time.Now()
	for _, m := range coordinators {
		m.Kill()
	}
	for _, m := range gateways {
		c.AwaitNodes(slack(truthIn), m.Name+" doubts the coordinators", func(info client.NodesInfo) bool {
			return !slices.ContainsFunc(info.Nodes, func(n client.NodeInfo) bool {
				return (n.State == "suspect") != slices.Equal(n.Roles, []string{"coordinator"})
			})
		}, c.Others(m)...)
		c.Await(slack(alertIn), m.Name+" tells that the coordinators are down", func() bool {
			list, _, err := client.New(m.URL).TryAlerts(t.Context())
			down := 0
			for _, a := range list {
				if a.Name == "node-down" && a.State == "firing" {
					down++
				}
			}
			return err == nil && down == len(coordinators)
		})
		t.Logf("%s tells %s after the coordinators were killed", m.Name, time.Since(began).Round(time.Millisecond))
		awaitReadiness(t, m, 200, "no coordinator has been heard")
	}
	pause(t.Context(), 3*time.Second)
	for _, m := range gateways {
		awaitReadiness(t, m, 200, "no coordinator has been heard")
		client.New(m.URL).Must(t, 201, "POST", "/topics/deaf", "application/json", `1`)
	}
	c.Run(coordinators...)
	for _, m := range gateways {
		awaitReadiness(t, m, 200, `{"status":"ready"}`)
	}
}

// TestNodesWithoutClients has brokers and a coordinator beside the only gateway: it
// tells of their disks as of its own, and of damage on them.
func TestNodesWithoutClients(t *testing.T) {
	t.Parallel()
	c := harness.StartCluster(t, harness.ClusterOptions{
		Roles: []string{"coordinator", "broker", "broker", "gateway"}, Args: []string{"--scrub-rate", "64MiB", "--scrub-every", "2s"},
	})
	api := c.API()
	info := api.CreateTopic(t, "plain", `"replicas":2,"retention":{"bytes":33554432}`)
	nodes, err := api.TryNodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes.Nodes {
		if n.Uptime == "" || n.Disk.Free < 1<<20 || n.State != "alive" {
			t.Errorf("%s says nothing of itself: %+v", n.Name, n)
		}
	}
	if list, raw, err := api.TryAlerts(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("all is well, and an alert fires: %s (%v)", raw, err)
	}
	value := strings.Repeat("a", 256<<10)
	for range 40 {
		api.Must(t, 201, "POST", "/topics/plain", "text/plain", value)
	}
	follower := c.Others(c.Member(api.Topic(t, "plain").Layout.Partitions[0].Leader), c.Members[0], c.Members[3])[0]
	harness.FlipByte(t, awaitSealed(t, follower, info, 0), 100_000)
	awaitAlert(t, c, "corrupt-replica", follower.Name)
}

// awaitReadiness waits until a gateway says how it is.
func awaitReadiness(t *testing.T, m *harness.Member, status int, with string) {
	t.Helper()
	var ans client.Answer
	api := client.New(m.URL)
	defer api.HTTP.CloseIdleConnections()
	began := time.Now()
	harness.Await(t, patience, m.Name+" says that it is ready or not", func() bool {
		var err error
		if ans, err = api.Do(t.Context(), "GET", "/readyz", "", ""); err != nil {
			t.Fatal(err)
		}
		return ans.Status == status && strings.Contains(ans.Body, with)
	})
	t.Logf("%s after %s: %d %s", m.Name, time.Since(began).Round(time.Millisecond), ans.Status, ans.Body)
}

// tell lets something happen and measures when each other node tells of it.
func tell(t *testing.T, c *harness.Cluster, victim *harness.Member, what string, happen func(), state string, alerts bool) {
	t.Helper()
	began, starved := time.Now(), c.Starved()
	happen()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var wait sync.WaitGroup
	for _, m := range c.Others(victim) {
		if !m.Has("gateway") {
			continue
		}
		wait.Go(func() {
			api := client.New(m.URL)
			defer api.HTTP.CloseIdleConnections()
			var listed, shown, alerted time.Duration
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for listed == 0 || shown == 0 || alerted == 0 {
				if info, err := api.TryNodes(ctx); err == nil && listed == 0 {
					if x, ok := info.Find(victim.Name); ok && x.State == state {
						listed = time.Since(began)
					}
				}
				if list, _, err := api.TryAlerts(ctx); err == nil && alerted == 0 {
					fires := slices.ContainsFunc(list, func(a client.Alert) bool {
						return a.Name == "node-down" && a.State == "firing" && a.Node == victim.Name
					})
					if fires == alerts {
						alerted = time.Since(began)
					}
				}
				if listed > 0 && shown == 0 { // a process each time: not before it can be right
					if info, err := tryListedNodes(ctx, m); err == nil {
						if x, ok := info.Find(victim.Name); ok && x.State == state {
							shown = time.Since(began)
						}
					}
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
					t.Errorf("%s of %s: %s does not tell: nodes after %s, the command after %s, alerts after %s", what, victim.Name, m.Name, listed, shown, alerted)
					return
				}
			}
			t.Logf("%s of %s: %s lists it after %s, the command after %s, its alerts tell after %s",
				what, victim.Name, m.Name, listed.Round(time.Millisecond), shown.Round(time.Millisecond), alerted.Round(time.Millisecond))
			if late := starved(); max(listed, shown) > slack(truthIn)+late || alerted > slack(alertIn)+late {
				t.Errorf("%s of %s: %s lists it after %s, the command after %s (%s at most), its alerts tell after %s (%s); the machine kept a process waiting %s",
					what, victim.Name, m.Name, listed, shown, truthIn, alerted, alertIn, late)
			}
		})
	}
	wait.Wait()
}

// drain asks for a drain, or for its end, wherever it can be asked for.
func drain(t *testing.T, c *harness.Cluster, victim *harness.Member, cancel bool) {
	t.Helper()
	c.API(victim).Must(t, 202, "POST", "/nodes/"+victim.Name+"/drain", "application/json", fmt.Sprintf(`{"cancel":%t}`, cancel))
}

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
)

// toForm bounds the start of a cluster from empty folders.
const toForm = 5 * time.Second

// TestAClusterForms starts three processes with empty folders: they find one
// another, elect, spread a topic's partitions and serve every partition from every
// gateway.
func TestAClusterForms(t *testing.T) {
	beside(t)
	c := harness.NewCluster(t, harness.ClusterOptions{})
	starved := c.Starved()
	took := c.Form()
	t.Logf("three nodes formed a cluster from empty folders in %s", took.Round(time.Millisecond))
	if most := slack(toForm) + starved(); took > most {
		t.Errorf("it took %s, %s at most is allowed", took, most)
	}
	// All tell the same of one another, by the call and by the command. A busy machine may
	// have them elect once more between two questions: then all are asked again.
	c.Await(slack(truthIn), "every node knows all nodes", func() bool {
		leaders := map[string]bool{}
		for _, m := range c.Members {
			info, err := client.New(m.URL).TryNodes(t.Context())
			if err != nil || len(info.Nodes) != 3 || slices.ContainsFunc(info.Nodes, func(n client.NodeInfo) bool { return n.State != "alive" || len(n.Roles) != 3 }) {
				return false
			}
			leaders[info.CoordinatorLeader] = true
			for _, n := range listedNodes(t, m) {
				if x, ok := info.Find(n.Name); !ok || x.ID != n.ID || x.CoordinatorLeader != n.CoordinatorLeader {
					return false
				}
			}
		}
		return len(leaders) == 1 && !leaders[""]
	})

	// Replicas and min_insync not given: three, two of which must be in sync.
	info := c.API().CreateTopic(t, "spread", `"partitions":6`)
	if info.Replicas != 3 || info.MinInsync != 2 {
		t.Errorf("by default %d replicas, %d in sync", info.Replicas, info.MinInsync)
	}
	info = c.AwaitSpread(patience, "spread")
	for _, m := range c.Members {
		if led := harness.Led(info, m.Name); len(led) != 2 {
			t.Errorf("%s leads %v: not spread: %s", m.Name, led, harness.Standing(info))
		}
	}
	want := map[int][]string{}
	for _, m := range c.Members {
		api := client.New(m.URL)
		c.AwaitTopic(slack(truthIn), "spread", m.Name+" knows the topic", harness.Whole, c.Others(m)...)
		for _, p := range info.Layout.Partitions {
			value := fmt.Sprintf("%s-%d", m.Name, p.ID)
			place, err := postText(t, api, fmt.Sprintf("spread?partition=%d", p.ID), value, 201).Place()
			if err != nil || place.Partition != p.ID || place.Offset == nil || *place.Offset != int64(len(want[p.ID])) {
				t.Fatalf("published to partition %d by %s: %+v %v", p.ID, m.Name, place, err)
			}
			want[p.ID] = append(want[p.ID], value)
		}
	}
	for _, m := range c.Members {
		for p, values := range want {
			var got []string
			for _, x := range client.New(m.URL).ReadAll(t, "spread", p) {
				got = append(got, string(x.Bytes()))
			}
			if !slices.Equal(got, values) {
				t.Errorf("partition %d by %s: %v, want %v", p, m.Name, got, values)
			}
		}
	}
	// More replicas than brokers; a topic deleted is gone everywhere.
	if ans := c.API().Must(t, 400, "POST", "/topics/", "application/json", `{"name":"many","replicas":4}`); !strings.Contains(ans.Body, "replicas") {
		t.Errorf("four replicas: %s", ans.Body)
	}
	c.API().Must(t, 204, "DELETE", "/topics/spread", "", "")
	for _, m := range c.Members {
		c.Await(slack(truthIn), m.Name+" has forgotten the topic", func() bool {
			ans, err := client.New(m.URL).Do(t.Context(), "GET", "/topics/spread/metadata", "", "")
			return err == nil && ans.Status == 404
		})
	}
	c.StopAll()
}

// listedNodes are the nodes as the command shows them.
func listedNodes(t *testing.T, m *harness.Member) []client.NodeInfo {
	t.Helper()
	info, err := tryListedNodes(t.Context(), m)
	if err != nil || len(info.Nodes) != 3 {
		t.Fatalf("%+v, %v", info, err)
	}
	return info.Nodes
}

// tryListedNodes are the nodes as the command shows them.
func tryListedNodes(ctx context.Context, m *harness.Member) (info client.NodesInfo, err error) {
	listed, stderr, code := m.CLI(ctx, nil, "nodes", "--output", "json")
	if code != 0 {
		return info, fmt.Errorf("tidewire nodes at %s: exit %d: %s%s", m.Name, code, listed, stderr)
	}
	for line := range strings.Lines(listed) {
		var n client.NodeInfo
		if err := json.Unmarshal([]byte(line), &n); err != nil {
			return info, fmt.Errorf("tidewire nodes at %s: %q: %w", m.Name, line, err)
		}
		info.Nodes = append(info.Nodes, n)
	}
	return info, nil
}

// TestANodeThatExpectsMoreThanThereAreJoins starts a node as one of five founders, beside
// a cluster that has three coordinators: it has nothing to wait for.
func TestANodeThatExpectsMoreThanThereAreJoins(t *testing.T) {
	t.Parallel()
	c := harness.StartCluster(t, harness.ClusterOptions{})
	late := harness.New(t, harness.Options{Args: []string{"--name", "late", "--bootstrap-expect", "5", "--join", c.Members[0].Listeners["gossip"]}})
	if err := late.Begin(); err != nil {
		t.Fatal(err)
	}
	addr, err := late.Listening("http")
	if err != nil {
		t.Fatal(err)
	}
	harness.Await(t, patience, "it serves", func() bool {
		a, err := client.New("http://"+addr).Do(t.Context(), "GET", "/readyz", "", "")
		return err == nil && a.Status == 200
	})
	c.AwaitNodes(patience, "it is among the others", func(info client.NodesInfo) bool { return len(info.Nodes) == 4 })
}

// TestAFourthNodeJoinsUnderLoad adds a node to a cluster that is written to: it
// takes replicas and leaders, and no write fails.
func TestAFourthNodeJoinsUnderLoad(t *testing.T) {
	timed(t)
	c := harness.StartCluster(t, harness.ClusterOptions{})
	o := largeCrew("growing")
	o.readers /= 2
	w := startCrew(t, c, o)
	w.awaitEach(20)
	s := w.begin("a fourth node joins")
	m := c.Add(harness.AllRoles)
	w.use(m)
	w.awaitTruth(m, "alive")
	joined := time.Now()
	info := c.AwaitTopic(patience, "growing", "the fourth node has its share", func(info client.TopicInfo) bool {
		replicas := 0
		for _, p := range info.Layout.Partitions {
			if slices.Contains(p.ISR, m.Name) {
				replicas++
			}
		}
		return replicas >= 4 && len(harness.Led(info, m.Name)) >= 1 && harness.Whole(info) &&
			!slices.ContainsFunc(info.Layout.Partitions, func(p client.PartitionInfo) bool { return len(p.Replicas) != 3 })
	})
	t.Logf("it had its share %s later: %s", time.Since(joined).Round(time.Millisecond), harness.Standing(info))
	c.AwaitNodes(patience, "no move is under way", func(info client.NodesInfo) bool {
		return !slices.ContainsFunc(info.Nodes, func(n client.NodeInfo) bool { return len(n.Moves) > 0 })
	})
	s.end(class{"all partitions", func(string) bool { return true }, time.Second})
	w.finish()
	w.identical()
}

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
	"tidewire/internal/testkit/chromium"
)

// dashboardLoad publishes to a cluster and has a group that works on it, until it is stopped.
type dashboardLoad struct {
	stop func()
}

func startDashboardLoad(t *testing.T, api *client.API) dashboardLoad {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := api.RegisterGroup(ctx, "orders", "billing", ""); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			// A node dies in one of the tests: what is refused meanwhile is not counted on.
			_, _ = api.Do(ctx, "POST", fmt.Sprintf("/topics/orders?key=k%d", i%20), jsonType, fmt.Sprintf(`{"n":%d}`, i))
		}
	})
	wg.Go(func() {
		j, err := api.JoinGroup(ctx, "orders", "billing", "worker")
		for err == nil {
			var took []client.Leased
			if took, err = api.TakeMessages(ctx, "orders", "billing", j, 20, "1s"); err != nil {
				return
			}
			s := client.Settlement{Member: j.Member, Epoch: j.Epoch}
			for _, m := range took {
				s.Ack = append(s.Ack, client.At{Partition: m.Partition, Offset: m.Offset})
			}
			if len(took) > 0 {
				_, err = api.Settle(ctx, "orders", "billing", s)
			}
		}
	})
	l := dashboardLoad{stop: func() {
		cancel()
		wg.Wait()
	}}
	t.Cleanup(l.stop)
	return l
}

func records(info client.TopicInfo) (sum int64) {
	for _, p := range info.Layout.Partitions {
		sum += p.HW - p.Earliest
	}
	return sum
}

// TestTheDashboardAgreesWithTheAPI compares every screen's figures with what the API
// says: while records come, those that only grow lie between what it said before and
// after; once all is still they are the same.
func TestTheDashboardAgreesWithTheAPI(t *testing.T) {
	t.Parallel()
	b := chromium.Start(t)
	c := harness.StartCluster(t, harness.ClusterOptions{})
	api := client.New(c.Members[0].URL)
	api.CreateTopic(t, "orders", `"partitions":4`)
	load := startDashboardLoad(t, api)
	stream, err := client.OpenSSE(t.Context(), c.Members[1].URL+"/topics/orders/events", "")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()

	p := openDashboard(t, b, c.Members[0].URL, "/overview")
	p.until("the overview has all nodes", `fact("Nodes alive") === "3"`)
	p.until("and a rate", `Number(fact("Published a second")) > 0`)
	p.until("charts have lines", `[...document.querySelectorAll(".chart path")].filter((l) => l.getAttribute("d").includes("L")).length >= 2`)

	p.show("/topics")
	for range 5 {
		before := records(api.Topic(t, "orders"))
		var shown int64
		harness.Await(t, 20*time.Second, "the page asks again", func() bool {
			n, ok := number(p.js(`cell(` + chromium.Quote(api.Topic(t, "orders").ID) + `, "Messages")`))
			shown = n
			return ok && n > before
		})
		// What is shown may be a moment newer than what the API says for a second.
		harness.Await(t, 10*time.Second, "the API says as much", func() bool { return records(api.Topic(t, "orders")) >= shown })
	}
	load.stop()

	id := api.Topic(t, "orders").ID
	ctx := t.Context()
	p.agrees(t, "topics", func() map[string]int64 {
		info := api.Topic(t, "orders")
		g, err := api.Group(ctx, "orders", "billing")
		if err != nil {
			t.Fatal(err)
		}
		cell := func(head string) string { return fmt.Sprintf(`cell(%s, %s)`, chromium.Quote(id), chromium.Quote(head)) }
		return map[string]int64{
			cell("Messages"): records(info), cell("Partitions"): 4, cell("Replicas"): int64(info.Replicas), cell("Groups"): 1, cell("Max lag"): lag(g),
		}
	})
	p.show("/topics/orders/partitions")
	p.agrees(t, "the partitions", func() map[string]int64 {
		all := map[string]int64{`fact("Messages")`: records(api.Topic(t, "orders"))}
		for _, part := range api.Topic(t, "orders").Layout.Partitions {
			all[fmt.Sprintf(`cell("%d", "End")`, part.ID)] = part.HW
			all[fmt.Sprintf(`cell("%d", "First offset")`, part.ID)] = part.Earliest
			all[fmt.Sprintf(`cell("%d", "Epoch")`, part.ID)] = part.LeaderEpoch
		}
		return all
	})
	for _, part := range api.Topic(t, "orders").Layout.Partitions {
		want := part.Leader + " " + strings.Join(part.ISR, ", ")
		p.until("the leader and the replicas in sync", fmt.Sprintf(`cell("%d", "Leader") + " " + cell("%d", "In sync") === %s`, part.ID, part.ID, chromium.Quote(want)))
	}
	p.show("/groups/orders/billing")
	p.agrees(t, "the group", func() map[string]int64 {
		g, err := api.Group(ctx, "orders", "billing")
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]int64{`fact("Lag")`: lag(g)}
		for _, part := range g.Partitions {
			all[fmt.Sprintf(`cell("%d", "Done up to")`, part.Partition)] = *part.Committed
			all[fmt.Sprintf(`cell("%d", "Lag")`, part.Partition)] = *part.Lag
		}
		return all
	})
	p.show("/groups")
	p.agrees(t, "groups", func() map[string]int64 {
		g, err := api.Group(ctx, "orders", "billing")
		if err != nil {
			t.Fatal(err)
		}
		return map[string]int64{`cell("orders/billing", "Lag")`: lag(g), `cell("orders/billing", "Members")`: int64(len(g.Members))}
	})
	p.show("/connections")
	p.agrees(t, "connections", func() map[string]int64 {
		var answer struct{ Connections []json.RawMessage }
		if err := json.Unmarshal([]byte(api.Must(t, 200, "GET", "/connections/", "", "").Body), &answer); err != nil {
			t.Fatal(err)
		}
		return map[string]int64{`fact("Connections")`: int64(len(answer.Connections)), `fact("Server-sent events")`: 1}
	})
	p.show("/cluster")
	p.agrees(t, "the cluster", func() map[string]int64 {
		info, err := api.TryNodes(ctx)
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]int64{}
		for _, n := range info.Nodes {
			all[fmt.Sprintf(`cell(%s, "Leads")`, chromium.Quote(n.ID))] = int64(n.Partitions.Led)
			all[fmt.Sprintf(`cell(%s, "Follows")`, chromium.Quote(n.ID))] = int64(n.Partitions.Followed)
			if n.Connections != nil {
				all[fmt.Sprintf(`cell(%s, "Connections")`, chromium.Quote(n.ID))] = *n.Connections
			}
		}
		return all
	})
	if got := p.js(`document.querySelectorAll(".cell").length`); got != "4" {
		t.Errorf("%s partitions on the map", got)
	}
	p.show("/overview")
	p.agrees(t, "the overview", func() map[string]int64 {
		g, err := api.Group(ctx, "orders", "billing")
		if err != nil {
			t.Fatal(err)
		}
		return map[string]int64{`fact("Topics")`: 1, `fact("Partitions")`: 4, `fact("Nodes alive")`: 3, `fact("Lag of groups")`: lag(g), `fact("Connections")`: 1, `fact("Fewer in sync")`: 0}
	})
}

func lag(g client.GroupInfo) (sum int64) {
	for _, p := range g.Partitions {
		if p.Lag != nil {
			sum += *p.Lag
		}
	}
	return sum
}

// deathShows is how long the overview may take to say that a node is gone.
const deathShows = 3 * time.Second

// TestTheDashboardTellsOfADeadNode kills a node under load, and looks at the overview.
func TestTheDashboardTellsOfADeadNode(t *testing.T) {
	t.Parallel()
	b := chromium.Start(t)
	c := harness.StartCluster(t, harness.ClusterOptions{})
	api := client.New(c.Members[0].URL)
	api.CreateTopic(t, "orders", `"partitions":4`)
	startDashboardLoad(t, api)
	p := openDashboard(t, b, c.Members[0].URL, "/overview")
	p.until("all is well", `document.getElementById("state").textContent === "All is well" && fact("Nodes alive") === "3"`)

	victim := c.Members[2]
	p.js(`void new MutationObserver(() => { if (document.querySelector(".troubles")?.textContent.includes(` + chromium.Quote(victim.Name) + `)) window.told ??= performance.now(); })
		.observe(document.body, { subtree: true, childList: true, characterData: true })`)
	starved := c.Starved()
	killed := p.js(`performance.now()`)
	victim.Kill()
	p.until("the overview names the node", `window.told`)
	took := p.js(`Math.round(window.told - ` + killed + `)`)
	most := slack(deathShows) + starved()
	if ms, ok := number(took); !ok || time.Duration(ms)*time.Millisecond > most {
		t.Errorf("the overview said so after %s ms, %s at most is allowed", took, most)
	}
	t.Logf("the overview named the dead node after %s ms", took)
	p.until("the alert comes, with what to do", `[...document.querySelectorAll(".troubles li")].some((l) => l.textContent.includes("node-down") && l.querySelector("p"))`)
	p.until("its partitions are short of replicas", `Number(fact("Fewer in sync")) > 0`)
	p.show("/cluster")
	p.until("the cluster shows it", `[...document.querySelectorAll(".mark.dead")].length > 0`)
	c.Run(victim)
	p.show("/overview")
	p.until("and when it is well again", `fact("Fewer in sync") === "0"`)
}

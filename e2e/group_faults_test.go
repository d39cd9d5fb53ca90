package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
	"tidewire/internal/testkit/redelivery"
)

// fill publishes records of a few hundred keys and gives the ends of the partitions.
func fill(t *testing.T, api *client.API, topic string, records int) map[int]int64 {
	t.Helper()
	const page = 2000
	for from := 0; from < records; from += page {
		var body strings.Builder
		for i := from; i < min(from+page, records); i++ {
			fmt.Fprintf(&body, `{"key":"k%d","value":{"n":%d}}`+"\n", i%499, i)
		}
		api.Must(t, 201, "POST", "/topics/"+topic, "application/x-ndjson", body.String())
	}
	ends := map[int]int64{}
	for _, p := range api.Topic(t, topic).Layout.Partitions {
		ends[p.ID] = p.HW
	}
	return ends
}

// TestGroupsOutliveTheirMembersAndNodes has a group work through a topic while its members
// join, leave and are killed, and nodes are killed in turn, the leading coordinator too.
func TestGroupsOutliveTheirMembersAndNodes(t *testing.T) {
	t.Parallel()
	records, every := int64(2_000), time.Second
	if harness.Soak() {
		records, every = 100_000, 3*time.Second
	}
	for _, mode := range []string{"exclusive", "shared"} {
		t.Run(mode, func(t *testing.T) {
			busy(t)
			c := harness.StartCluster(t, harness.ClusterOptions{})
			api := c.API()
			api.CreateTopic(t, "work", `"partitions":12,"replicas":3`)
			c.AwaitWhole(patience, "work")
			ends := fill(t, api, "work", int(records))
			g := newGroupCrew(t, c, "work", "g", mode)
			for range 5 {
				g.add()
			}
			watching, enough := context.WithCancel(t.Context())
			defer enough()
			g.running.Go(func() { g.floors(watching) })
			var seen redelivery.Leaders
			g.leaders(watching, &seen)

			stop := make(chan struct{})
			g.running.Go(func() { membersComeAndGo(g, every, stop) })
			// Two nodes and the leading coordinator at the least, and more until all is done.
			rounds := 0
			for ; (rounds < 3 || g.finished() < records) && rounds < 60 && !t.Failed(); rounds++ {
				m := c.Members[rounds%len(c.Members)]
				if rounds%3 == 2 {
					m = c.CoordinatorLeader()
				}
				f := redelivery.Fault{Kind: redelivery.NodeKilled, Node: m.Name, Leads: m == c.CoordinatorLeader(), Span: redelivery.Span{From: time.Now()}}
				m.Kill()
				c.AwaitState(patience, m, "dead")
				c.Run(m)
				c.AwaitWhole(patience, "work")
				f.To = time.Now()
				g.fault(f)
				// A twentieth of all comes before the next death, and each hundredth in time.
				before := g.finished()
				for step := int64(1); step <= 5; step++ {
					harness.Await(t, patience, "the group goes on", func() bool { return g.finished() >= min(before+step*records/100, records) || t.Failed() })
				}
			}
			t.Logf("%d nodes were killed meanwhile", rounds)
			close(stop)
			g.committed(patience)
			enough()
			g.judge(ends, seen.Changes())
		})
	}
}

// membersComeAndGo has a member join, leave or be killed, each in its turn, and keeps three
// to eight of them.
func membersComeAndGo(g *groupCrew, every time.Duration, stop <-chan struct{}) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-tick.C:
		case <-stop:
			return
		case <-g.ctx.Done():
			return
		}
		g.mu.Lock()
		n := len(g.lives)
		g.mu.Unlock()
		switch {
		case n <= 3 || n < 8 && rand.N(2) == 0:
			g.add()
		default:
			g.end(g.anyone(), i%2 == 0)
		}
	}
}

// TestPoisonIsDeadLetteredOnce mixes records that always fail into a topic, and kills the
// leader in the midst: each of them ends in the dead-letter topic once, with its reason,
// and holds up nobody else.
func TestPoisonIsDeadLetteredOnce(t *testing.T) {
	t.Parallel()
	const poison = 20
	records := 2_000
	if harness.Soak() {
		records = 10_000
	}
	c := harness.StartCluster(t, harness.ClusterOptions{})
	api := c.API()
	api.CreateTopic(t, "food", `"partitions":3,"replicas":3`)
	c.AwaitWhole(patience, "food")
	var body strings.Builder
	for i := range records {
		what := "bread"
		if i%(records/poison) == 7 {
			what = "poison"
		}
		fmt.Fprintf(&body, `{"key":"k%d","value":{"n":%d,"what":%q}}`+"\n", i, i, what)
	}
	api.Must(t, 201, "POST", "/topics/food", "application/x-ndjson", body.String())
	if status, err := api.RegisterGroup(t.Context(), "food", "eaters", `"from":"earliest","lease":"5s","session":"5s","backoff":"50ms","max_deliveries":3`); err != nil || status != 201 {
		t.Fatal(status, err)
	}
	kept := []*client.API{}
	for _, m := range c.Gateways() {
		kept = append(kept, client.New(m.URL))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	eaten := make(chan int, 1<<16)
	failed := map[string]int{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		eat(ctx, t, kept, eaten, failed)
	}()
	for n := 0; n < records/3; n++ {
		<-eaten
	}
	leader := c.Member(api.Topic(t, "food").Layout.Partitions[0].Leader)
	leader.Kill()
	c.AwaitState(patience, leader, "dead")
	c.Run(leader)
	c.AwaitWhole(patience, "food")
	harness.Await(t, patience, "everything is eaten or dead", func() bool {
		info, err := kept[0].Group(ctx, "food", "eaters")
		if err != nil {
			return false
		}
		for _, p := range info.Partitions {
			if p.Committed == nil || p.End == nil || *p.Committed != *p.End {
				return false
			}
		}
		return len(info.Partitions) == 3
	})
	cancel()
	<-done
	letters := kept[0].ReadAll(t, "food.eaters.dlq", 0)
	seen := map[string]bool{}
	for _, m := range letters {
		from := m.Headers["Tidewire-Dead-Partition"] + "/" + m.Headers["Tidewire-Dead-Offset"]
		if seen[from] {
			t.Errorf("%s is dead-lettered twice", from)
		}
		seen[from] = true
		if !strings.Contains(string(m.Value), "poison") || m.Headers["Tidewire-Dead-Topic"] != "food" || m.Headers["Tidewire-Dead-Group"] != "eaters" || m.Headers["Tidewire-Dead-Deliveries"] == "" || m.Headers["Tidewire-Dead-Reason"] == "" {
			t.Errorf("a dead letter: %s %v", m.Value, m.Headers)
		}
	}
	if len(letters) != poison {
		t.Errorf("%d dead letters, want %d", len(letters), poison)
	}
}

// eat works as one member: what is poison is given back.
func eat(ctx context.Context, t *testing.T, gateways []*client.API, eaten chan<- int, failed map[string]int) {
	for ctx.Err() == nil {
		pick := func() *client.API { return gateways[rand.N(len(gateways))] }
		j, err := pick().JoinGroup(ctx, "food", "eaters", "eater")
		for err == nil || passingRefusal(err) {
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				pause(ctx, 50*time.Millisecond)
			}
			var all []client.Leased
			if all, err = pick().TakeMessages(ctx, "food", "eaters", j, 50, "300ms"); err != nil || len(all) == 0 {
				continue
			}
			s := client.Settlement{Member: j.Member, Epoch: j.Epoch}
			for _, m := range all {
				at := client.At{Partition: m.Partition, Offset: m.Offset}
				if strings.Contains(string(m.Value), "poison") {
					failed[fmt.Sprint(at)]++
					s.Nack = append(s.Nack, at)
				} else {
					s.Ack = append(s.Ack, at)
				}
			}
			for {
				if _, err = pick().Settle(ctx, "food", "eaters", s); err == nil || !passingRefusal(err) || ctx.Err() != nil {
					break
				}
				pause(ctx, 50*time.Millisecond)
			}
			for i := range s.Ack {
				eaten <- i
			}
		}
		if ctx.Err() == nil && !isFenced(err) {
			t.Errorf("the eater: %v", err)
			return
		}
	}
}

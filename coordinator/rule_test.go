package coordinator_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"tidewire/coordinator"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// brokers are the nodes of a test as probes find them, and renew as long as they live.
type brokers struct {
	mu    sync.Mutex
	state map[ident.NodeID]cluster.Outcome
	asked map[ident.NodeID]int
	full  ident.NodeID // whose disk is; zero: nobody's
}

func (b *brokers) set(id ident.NodeID, o cluster.Outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state[id] = o
}

func (b *brokers) probe(ctx context.Context, n cluster.Node) cluster.Outcome {
	b.mu.Lock()
	o := b.state[n.ID]
	b.asked[n.ID]++
	b.mu.Unlock()
	if o == cluster.Silent {
		<-ctx.Done()
	}
	return o
}

// renewing keeps lives alive by way of whichever coordinator answers.
func (b *brokers) renewing(t *testing.T, all []*coordinator.Coordinator, lives []cluster.Life, every time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, life := range lives {
		wg.Go(func() {
			tick := time.NewTicker(every)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-tick.C:
				case <-ctx.Done():
					return
				}
				b.mu.Lock()
				alive, full := b.state[life.Node] == cluster.Answered, b.full == life.Node
				b.mu.Unlock()
				if alive {
					limited, end := context.WithTimeout(ctx, every)
					_, _ = all[i%len(all)].Renew(limited, cluster.Renewal{Life: life, Full: full}) // tried again
					end()
				}
			}
		})
	}
	t.Cleanup(func() { cancel(); wg.Wait() })
}

// reigning gives three coordinators that judge three brokers, and a topic on them. A
// long lease is one that no judgement of a test waits for.
func reigning(t *testing.T, lease time.Duration) (all []*coordinator.Coordinator, b *brokers, lives []cluster.Life) {
	t.Helper()
	n := newNet()
	b = &brokers{state: map[ident.NodeID]cluster.Outcome{}, asked: map[ident.NodeID]int{}}
	for i := byte(1); i <= 3; i++ {
		b.set(ident.NodeID{i}, cluster.Answered)
		c, _ := n.run(t, ident.NodeID{i}, t.TempDir(), func(cfg *coordinator.Config) {
			cfg.Probe, cfg.Lease = b.probe, lease
		})
		all = append(all, c)
	}
	eventually(t, 10*time.Second, "all three vote", func() bool { return len(all[0].Status().Voters) == 3 })
	for i := byte(1); i <= 3; i++ {
		epoch, err := all[0].Register(t.Context(), nodeOf(ident.NodeID{i}))
		if err != nil {
			t.Fatal(err)
		}
		lives = append(lives, cluster.Life{Node: ident.NodeID{i}, Epoch: epoch})
	}
	b.renewing(t, all, lives, 100*time.Millisecond)
	spec := topic("orders", 6)
	three := 3
	spec.Replicas = &three
	if _, _, err := all[0].CreateTopic(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	return all, b, lives
}

func ledBy(s *cluster.Snapshot, id ident.NodeID) (n int) {
	for _, t := range s.Topics {
		for _, p := range t.Partitions {
			if p.Leader == id {
				n++
			}
		}
	}
	return n
}

func TestARefusedNodeIsFollowedAtOnce(t *testing.T) {
	all, b, lives := reigning(t, time.Hour)
	victim := lives[1]
	if ledBy(all[0].Snapshot(), victim.Node) == 0 {
		t.Fatal("it leads nothing")
	}
	b.set(victim.Node, cluster.Refused)
	began := time.Now()
	if err := all[2].Report(t.Context(), cluster.Suspicion{From: lives[0].Node, Life: victim, Refused: true}); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "others lead what it led", func() bool { return ledBy(all[0].Snapshot(), victim.Node) == 0 })
	t.Logf("others led after %s", time.Since(began).Round(time.Millisecond))
	s := all[0].Snapshot()
	if n := s.Nodes[victim.Node]; !n.Over() || n.Serves() {
		t.Fatalf("%+v", n)
	}
	for _, p := range s.Topics["orders"].Partitions {
		if p.Leader == (ident.NodeID{}) || slices.Contains(p.ISR, victim.Node) {
			t.Fatalf("%+v", p)
		}
	}
	if _, err := all[1].Renew(t.Context(), cluster.Renewal{Life: victim}); !fault.Is(err, fault.Fenced) {
		t.Fatalf("a life that is over was renewed: %v", err)
	}
}

func TestASilentNodeIsDoubtedFirst(t *testing.T) {
	all, b, lives := reigning(t, 800*time.Millisecond)
	at := leading(t, all)
	victim := lives[(at+1)%3]
	b.set(victim.Node, cluster.Silent)
	began := time.Now()
	eventually(t, patience, "it is a suspect", func() bool { return slices.Contains(all[at].Status().Suspects, victim.Node) })
	if l, err := all[(at+2)%3].Renew(t.Context(), cluster.Renewal{Life: lives[at]}); err != nil || !slices.Contains(l.Suspects, victim.Node) {
		t.Errorf("a lease does not tell of it: %+v, %v", l, err)
	}
	eventually(t, patience, "it is over", func() bool { return all[at].Snapshot().Nodes[victim.Node].Over() })
	if took := time.Since(began); took < 700*time.Millisecond {
		t.Errorf("over after %s: before its lease was", took)
	} else {
		t.Logf("over after %s", took.Round(time.Millisecond))
	}
	for _, other := range lives {
		if other != victim && all[at].Snapshot().Nodes[other.Node].Over() {
			t.Errorf("%s is over too", other.Node)
		}
	}
}

func TestAReportAboutALivingNodeHarmsNobody(t *testing.T) {
	all, b, lives := reigning(t, time.Hour)
	for range 5 {
		if err := all[0].Report(t.Context(), cluster.Suspicion{From: lives[0].Node, Life: lives[1], Refused: true}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, patience, "it was probed", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.asked[lives[1].Node] > 0 })
	if _, err := all[2].Renew(t.Context(), cluster.Renewal{Life: lives[1]}); err != nil {
		t.Fatal(err)
	}
	if all[0].Snapshot().Nodes[lives[1].Node].Over() {
		t.Fatal("it is over")
	}
}

func TestANodeThatSaysThatItsDiskIsFullLeadsNothingAnyMore(t *testing.T) {
	all, b, lives := reigning(t, time.Hour)
	began := time.Now()
	b.mu.Lock()
	b.full = lives[0].Node
	b.mu.Unlock()
	eventually(t, patience, "it leads nothing", func() bool { return ledBy(all[0].Snapshot(), lives[0].Node) == 0 })
	t.Logf("after %s", time.Since(began).Round(time.Millisecond))
}

func TestADrainedNodeLeadsNothingAnyMore(t *testing.T) {
	all, _, lives := reigning(t, time.Hour)
	began := time.Now()
	if _, err := all[1].Propose(t.Context(), cluster.Change{Drain: &cluster.Drain{Node: lives[0].Node}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "it leads nothing", func() bool { return ledBy(all[0].Snapshot(), lives[0].Node) == 0 })
	t.Logf("after %s", time.Since(began).Round(time.Millisecond))
}

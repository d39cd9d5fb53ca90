package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidewire/coordinator"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

var me = cluster.Node{
	ID: ident.NodeID{1}, Name: "one", Roles: []string{"gateway", "broker", "coordinator"}, Storage: ident.StorageID{9},
}

func config(dir string) coordinator.Config {
	return coordinator.Config{Dir: dir, Bind: "127.0.0.1:0", Node: me, Found: true}
}

// start opens a coordinator and runs it until stop or the end of the test.
func start(t testing.TB, cfg coordinator.Config) (c *coordinator.Coordinator, stop func()) {
	t.Helper()
	c = coordinator.New(cfg)
	if err := c.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := c.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(stop)
	return c, stop
}

func register(t *testing.T, c *coordinator.Coordinator) ident.BrokerEpoch {
	t.Helper()
	epoch, err := c.Register(t.Context(), me)
	if err != nil {
		t.Fatal(err)
	}
	return epoch
}

func topic(name string, partitions int) cluster.TopicSpec {
	return cluster.TopicSpec{Name: name, Partitions: &partitions}
}

func TestATopicsLifeSurvivesRestarts(t *testing.T) {
	dir := t.TempDir()
	c, stop := start(t, config(dir))
	first := register(t, c)
	if c.Snapshot().Index < uint64(first) {
		t.Fatal("the feed is behind a registration that was answered")
	}
	made, created, err := c.CreateTopic(t.Context(), topic("orders", 4))
	if err != nil || !created {
		t.Fatal(created, err)
	}
	if again, created, err := c.CreateTopic(t.Context(), topic("orders", 4)); err != nil || created || again.ID != made.ID {
		t.Fatal(again, created, err)
	}
	if _, _, err := c.CreateTopic(t.Context(), topic("orders", 5)); !fault.Is(err, fault.TopicExists) {
		t.Fatal(err)
	}
	if err := c.DeleteTopic(t.Context(), "gone"); !fault.Is(err, fault.TopicNotFound) {
		t.Fatal(err)
	}
	if _, _, err := c.CreateTopic(t.Context(), topic("brief", 1)); err != nil {
		t.Fatal(err)
	}
	if err := c.DeleteTopic(t.Context(), "brief"); err != nil {
		t.Fatal(err)
	}
	id, addr := c.Snapshot().Cluster, c.Addr()
	stop()

	// Not founded again, and at whatever address: the same cluster.
	cfg := config(dir)
	cfg.Found, cfg.MinIndex = false, uint64(first)
	c, _ = start(t, cfg)
	s := c.Snapshot()
	if s.Cluster != id {
		t.Fatalf("cluster %s became %s", id, s.Cluster)
	}
	if c.Addr() == addr {
		t.Logf("the port is the same again: %s", addr)
	}
	found, ok := s.Topic("orders")
	if !ok || found.ID != made.ID || len(found.Partitions) != 4 || len(s.Deleted) != 1 {
		t.Fatalf("after a restart: %+v", s)
	}
	if second := register(t, c); second <= first {
		t.Fatalf("broker epoch %d after %d", second, first)
	}
	found, _ = c.Snapshot().Topic("orders")
	if found.Partitions[0].LeaderEpoch != 3 || c.Status().Leader != me.ID {
		t.Fatalf("%+v, %+v", found.Partitions[0], c.Status())
	}
}

func TestTheFeedFollowsEveryChange(t *testing.T) {
	c, stop := start(t, config(t.TempDir()))
	register(t, c)
	after := c.Snapshot().Index
	got := make(chan *cluster.Snapshot, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		s, err := c.Next(context.Background(), after)
		if err != nil {
			t.Error(err)
		}
		got <- s
	})
	made, _, err := c.CreateTopic(t.Context(), topic("orders", 1))
	if err != nil {
		t.Fatal(err)
	}
	if s := <-got; s.Topics["orders"] == nil || s.Index != made.Modified {
		t.Fatalf("%+v", s)
	}
	wg.Wait()
	stop()
	if _, _, err := c.CreateTopic(t.Context(), topic("late", 1)); !fault.Is(err, fault.CoordinatorUnavailable) {
		t.Fatal(err)
	}
}

func TestManyTopicsAtOnce(t *testing.T) {
	dir := t.TempDir()
	cfg := config(dir)
	cfg.Registerer = prometheus.NewPedanticRegistry()
	began := time.Now()
	c, stop := start(t, cfg)
	t.Logf("first start: %s", time.Since(began))
	register(t, c)
	const topics, callers = 300, 4
	began = time.Now()
	var wg sync.WaitGroup
	for k := range callers {
		wg.Go(func() {
			for i := k; i < topics; i += callers {
				if _, created, err := c.CreateTopic(context.Background(), topic(fmt.Sprintf("t%04d", i), 5)); err != nil || !created {
					t.Errorf("topic %d: %v, %v", i, created, err)
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	t.Logf("%d topics created: %.0f/s", topics, topics/took.Seconds())
	if n := len(c.Snapshot().Topics); n != topics {
		t.Fatalf("%d topics", n)
	}
	families, err := cfg.Registerer.(*prometheus.Registry).Gather()
	if err != nil || len(families) == 0 {
		t.Fatal(families, err)
	}
	stop()
	began = time.Now()
	c, _ = start(t, config(dir))
	t.Logf("start with %d topics: %s", topics, time.Since(began))
	if n := len(c.Snapshot().Topics); n != topics {
		t.Fatalf("%d topics after a restart", n)
	}
}

func TestAMissingStoreBesideDataIsRefused(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.Found = false
	c := coordinator.New(cfg)
	if err := c.Open(t.Context()); err == nil {
		t.Fatal("a new cluster was founded over existing data")
	} else {
		t.Log(err)
	}
}

func TestTwoProcessesDoNotShareAStore(t *testing.T) {
	dir := t.TempDir()
	start(t, config(dir))
	if err := coordinator.New(config(dir)).Open(t.Context()); err == nil {
		t.Fatal("a second coordinator opened the store")
	} else {
		t.Log(err)
	}
}

func TestAnotherNodesStoreIsRefused(t *testing.T) {
	dir := t.TempDir()
	_, stop := start(t, config(dir))
	stop()
	cfg := config(dir)
	cfg.Node.ID = ident.NodeID{2}
	if err := coordinator.New(cfg).Open(t.Context()); err == nil {
		t.Fatal("another node opened the store")
	}
}

func TestAnIncompleteConfigIsRefused(t *testing.T) {
	if err := coordinator.New(coordinator.Config{}).Open(t.Context()); err == nil {
		t.Fatal("opened without anything")
	}
	c := coordinator.New(config(t.TempDir()))
	if _, err := c.Next(canceled(), 0); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

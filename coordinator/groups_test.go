package coordinator_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"tidewire/coordinator"
	"tidewire/internal/cluster"
	"tidewire/internal/control"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// topical is one coordinator with a topic of so many partitions, all led by its node.
func topical(t testing.TB, partitions int) (*coordinator.Coordinator, *cluster.Topic, cluster.Life) {
	t.Helper()
	n := newNet()
	c, _ := n.run(t, ident.NodeID{1}, t.TempDir(), nil)
	eventually(t, patience, "it rules", func() bool { return c.Status().Leads })
	epoch, err := c.Register(t.Context(), nodeOf(ident.NodeID{1}))
	if err != nil {
		t.Fatal(err)
	}
	orders, _, err := c.CreateTopic(t.Context(), topic("orders", partitions))
	if err != nil {
		t.Fatal(err)
	}
	return c, orders, cluster.Life{Node: ident.NodeID{1}, Epoch: epoch}
}

func registration(t *cluster.Topic, name string, id byte) cluster.Change {
	r := &cluster.GroupRegister{ID: ident.GroupID{id, 7}, Topic: t.ID, Name: name}
	for i := range t.Partitions {
		r.Starts = append(r.Starts, cluster.Position{Partition: t.Partitions[i].Index})
	}
	return cluster.Change{GroupRegister: r}
}

func propose(t testing.TB, c control.Proposer, change cluster.Change) cluster.Answer {
	t.Helper()
	a, err := c.Propose(t.Context(), change)
	if err != nil {
		t.Fatal(change.Kind(), err)
	}
	return a
}

// What a commit does is read back, at its index, and a snapshot comes for the index alone.
func TestACommitIsKeptWithoutASnapshotOfItsOwn(t *testing.T) {
	c, orders, life := topical(t, 2)
	a := propose(t, c, registration(orders, "billing", 1))
	group := a.Group.ID
	joined := propose(t, c, cluster.Change{MemberJoin: &cluster.MemberJoin{Group: group, Member: "m"}})
	before := c.Snapshot()
	commit := func(from ident.Offset) cluster.Answer {
		return propose(t, c, cluster.Change{Commit: &cluster.Commit{Leader: life, Of: []cluster.CommitOf{{
			Group: group, Partition: 1, Leader: 1, Assignment: joined.Group.Owners[1].Epoch, Done: []cluster.Span{{From: from, To: from + 1}},
		}}}})
	}
	ctx, cancel := context.WithCancel(t.Context())
	snapshots := 0
	var wg sync.WaitGroup
	wg.Go(func() {
		for at := before.Index; ; snapshots++ {
			s, err := c.Next(ctx, at)
			if err != nil {
				return
			}
			at = s.Index
		}
	})
	began := time.Now()
	var last cluster.Answer
	for i := range ident.Offset(100) {
		if last = commit(i); !slices.Equal(last.Taken, []bool{true}) {
			t.Fatal(last)
		}
	}
	most := 2 + int(time.Since(began)/(400*time.Millisecond))
	cancel()
	wg.Wait()
	if snapshots > most {
		t.Errorf("%d snapshots of 100 commits in %s", snapshots, time.Since(began))
	}
	got, err := c.Progress(t.Context(), cluster.ProgressOf{Partition: orders.Ref(1), After: last.Index, Groups: []ident.GroupID{{9}, group}})
	if err != nil || len(got) != 1 || got[0].Group != group || got[0].Floor != 100 || len(got[0].Done) != 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	eventually(t, 2*time.Second, "the feed has the index", func() bool { return c.Snapshot().Index >= last.Index })
	if now := c.Snapshot(); now.Groups[orders.ID] != before.Groups[orders.ID] {
		t.Error("a commit has changed what the feed tells of groups")
	}
}

// Whoever asks for progress as of an index gets it from there on, never from before.
func TestProgressIsNeverOlderThanItIsAskedFor(t *testing.T) {
	c, orders, _ := topical(t, 1)
	after := c.Snapshot().Index + 1
	of := cluster.ProgressOf{Partition: orders.Ref(0), After: after, Groups: []ident.GroupID{{1, 7}}}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if got, err := c.ServeProgress(short, of); !fault.Is(err, fault.CoordinatorUnavailable) {
		t.Fatal(got, err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if got, err := c.Progress(t.Context(), of); err != nil || len(got) != 1 {
			t.Errorf("%+v, %v", got, err)
		}
	})
	propose(t, c, registration(orders, "billing", 1))
	wg.Wait()
	of.Groups = make([]ident.GroupID, cluster.MaxProgress+1)
	if _, err := c.Progress(t.Context(), of); !fault.Is(err, fault.Invalid) {
		t.Error(err)
	}
}

// A commit goes to the leader by way of any coordinator, and any of them tells of it, once
// it has come there.
func TestAnyCoordinatorTellsProgressOnceItHasComeThere(t *testing.T) {
	n := newNet()
	all := n.three(t)
	at := leading(t, all)
	epoch, err := all[at].Register(t.Context(), nodeOf(ident.NodeID{1}))
	if err != nil {
		t.Fatal(err)
	}
	orders, _, err := all[at].CreateTopic(t.Context(), topic("orders", 1))
	if err != nil {
		t.Fatal(err)
	}
	group := propose(t, all[at], registration(orders, "billing", 1)).Group.ID
	life := cluster.Life{Node: ident.NodeID{1}, Epoch: epoch}
	for i := range 20 {
		done := cluster.CommitOf{Group: group, Leader: 1, Done: []cluster.Span{{From: ident.Offset(i), To: ident.Offset(i + 1)}}}
		a := propose(t, all[i%3], cluster.Change{Commit: &cluster.Commit{Leader: life, Of: []cluster.CommitOf{done}}})
		for k, c := range all {
			got, err := c.Progress(t.Context(), cluster.ProgressOf{Partition: orders.Ref(0), After: a.Index, Groups: []ident.GroupID{group}})
			if err != nil || len(got) != 1 || got[0].Floor != ident.Offset(i+1) {
				t.Fatalf("%d tells after commit %d: %+v, %v", k+1, i, got, err)
			}
		}
	}
	// One that is cut off says so: it has not come there.
	cut := (at + 1) % 3
	n.cut(ident.NodeID{byte(cut + 1)})
	a := propose(t, all[at], cluster.Change{Commit: &cluster.Commit{Leader: life}})
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if got, err := all[cut].ServeProgress(short, cluster.ProgressOf{Partition: orders.Ref(0), After: a.Index, Groups: []ident.GroupID{group}}); !fault.Is(err, fault.CoordinatorUnavailable) {
		t.Errorf("%+v, %v", got, err)
	}
}

// Members that are heard live on, through a change of the leader too, and those that are
// not go, with their partitions.
func TestSessionsEndInSilenceAndOutliveTheirLeader(t *testing.T) {
	n := newNet()
	all := n.three(t)
	at := leading(t, all)
	if _, err := all[at].Register(t.Context(), nodeOf(ident.NodeID{1})); err != nil {
		t.Fatal(err)
	}
	orders, _, err := all[at].CreateTopic(t.Context(), topic("orders", 4))
	if err != nil {
		t.Fatal(err)
	}
	const session = 2 * time.Second
	change := registration(orders, "billing", 1)
	change.GroupRegister.Patch.Session = new(session)
	group := propose(t, all[at], change).Group.ID
	lives := map[string]cluster.MemberLife{}
	for _, id := range []string{"heard", "silent"} {
		a := propose(t, all[at], cluster.Change{MemberJoin: &cluster.MemberJoin{Group: group, Member: id}})
		lives[id] = cluster.MemberLife{Group: group, Member: id, Epoch: a.Member}
	}
	for i, c := range all {
		if _, err := c.ServeTouch(t.Context(), nil); i != at && control.LeaderIn(err) != (ident.NodeID{byte(at + 1)}) {
			t.Errorf("%d does not name the leader: %v", i+1, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var mu sync.Mutex
	lost := 0
	wg.Go(func() { // as a gateway does, by way of whoever there is
		for tick := time.NewTicker(100 * time.Millisecond); ctx.Err() == nil; {
			for _, c := range all {
				if l, err := c.Touch(ctx, []cluster.SignOfLife{{MemberLife: lives["heard"]}}); err == nil {
					mu.Lock()
					lost += len(l.Lives)
					mu.Unlock()
				}
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	members := func(c *coordinator.Coordinator) (ids []string) {
		g, ok := c.Snapshot().Group(orders.ID, "billing")
		if !ok {
			return nil // it has not come there yet
		}
		for _, m := range g.Members {
			ids = append(ids, m.ID)
		}
		return ids
	}
	began := time.Now()
	eventually(t, patience, "the silent one is gone", func() bool { return slices.Equal(members(all[at]), []string{"heard"}) })
	if took := time.Since(began); took < session/2 {
		t.Errorf("gone after %s", took)
	}
	g, _ := all[at].Snapshot().Group(orders.ID, "billing")
	for _, o := range g.Owners {
		if o.Member != "heard" || o.Next != "" {
			t.Errorf("%+v", o)
		}
	}
	if l, err := all[at].Touch(t.Context(), []cluster.SignOfLife{{MemberLife: lives["heard"]}, {MemberLife: lives["silent"]}}); err != nil || !slices.Equal(l.Lives, []int{1}) {
		t.Errorf("%+v, %v", l, err)
	}
	n.cut(ident.NodeID{byte(at + 1)})
	rest := slices.Delete(slices.Clone(all), at, at+1)
	to := rest[leading(t, rest)]
	eventually(t, patience, "it knows who went", func() bool { return slices.Equal(members(to), []string{"heard"}) })
	// Two sessions on, it lives: the new leader has heard it, or has not been there for one.
	tick := time.NewTicker(50 * time.Millisecond)
	for end := time.Now().Add(2 * session); time.Now().Before(end); <-tick.C {
		if !slices.Equal(members(to), []string{"heard"}) {
			t.Fatalf("members %v", members(to))
		}
	}
	cancel()
	wg.Wait()
	if lost > 0 {
		t.Errorf("it was told %d times that its life was over", lost)
	}
	eventually(t, patience, "nobody touches, so nobody is left", func() bool { return len(members(to)) == 0 })
}

// BenchmarkTenThousandGroups registers them on one topic, through Raft and the feed, and
// says what they cost.
func BenchmarkTenThousandGroups(b *testing.B) {
	const groups = 10_000
	for b.Loop() {
		c, orders, life := topical(b, 8)
		before := heap()
		began := time.Now()
		var wg sync.WaitGroup
		next := make(chan int)
		for range 8 { // as clients do
			wg.Go(func() {
				for i := range next {
					change := registration(orders, fmt.Sprint("group-", i), 1)
					change.GroupRegister.ID = ident.GroupID{1, byte(i), byte(i >> 8)}
					if _, err := c.Propose(b.Context(), change); err != nil {
						b.Error(err)
					}
				}
			})
		}
		var quarters []time.Duration
		for i := range groups {
			next <- i
			if i%(groups/4) == groups/4-1 {
				quarters = append(quarters, time.Since(began).Round(time.Millisecond))
			}
		}
		close(next)
		wg.Wait()
		if n := c.Snapshot().Groups[orders.ID].Len(); n != groups {
			b.Fatalf("%d groups", n)
		}
		b.Logf("a quarter each after %v", quarters)
		b.ReportMetric(time.Since(began).Seconds(), "s/10000-groups")
		b.ReportMetric(float64(heap()-before)/groups, "B/group")
		const commits = 200
		began = time.Now()
		for i := range commits {
			propose(b, c, cluster.Change{Commit: &cluster.Commit{Leader: life, Of: []cluster.CommitOf{{Group: ident.GroupID{1, byte(i)}, Leader: 1, Start: 1}}}})
		}
		b.ReportMetric(float64(time.Since(began).Microseconds())/commits, "µs/commit")
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

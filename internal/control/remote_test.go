package control_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/control"
	"tidewire/internal/fault"
	"tidewire/internal/feed"
	"tidewire/internal/ident"
)

// fleet is a few coordinators as one sees them over the network.
type fleet struct {
	mu     sync.Mutex
	nodes  map[ident.NodeID]*node
	leader ident.NodeID
	asked  []ident.NodeID // of Propose and Renew, in order
	made   map[cluster.RequestID]int
	index  uint64
}

type node struct {
	feed  *feed.Feed
	down  bool          // nobody listens
	mute  bool          // nothing comes back
	heard time.Duration // of its leader
	lose  bool          // the next answer is lost on the way back
	drop  chan struct{} // closed when its streams are to end
}

var (
	n1, n2, n3 = ident.NodeID{1}, ident.NodeID{2}, ident.NodeID{3}
	errDown    = errors.New("connection refused")
)

func newFleet() *fleet {
	f := &fleet{nodes: map[ident.NodeID]*node{}, leader: n1, made: map[cluster.RequestID]int{}, index: 1}
	for _, id := range []ident.NodeID{n1, n2, n3} {
		f.nodes[id] = &node{feed: feed.New(), drop: make(chan struct{})}
	}
	f.publish(n1, n2, n3)
	return f
}

// publish gives nodes the snapshot of the latest index.
func (f *fleet) publish(to ...ident.NodeID) {
	for _, id := range to {
		f.nodes[id].feed.Publish(&cluster.Snapshot{
			Cluster: ident.ClusterID{1}, Index: f.index, Topics: map[string]*cluster.Topic{}, ByID: map[ident.TopicID]*cluster.Topic{},
			Nodes: map[ident.NodeID]*cluster.Node{n3: {ID: n3, Roles: []string{"coordinator"}}}, Deleted: map[ident.TopicID]uint64{},
		})
	}
}

// kill ends a node, and with it its streams.
func (f *fleet) kill(id ident.NodeID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nodes[id].down = true
	close(f.nodes[id].drop)
}

func (f *fleet) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fleet) reach(ctx context.Context, id ident.NodeID) (*node, error) {
	f.mu.Lock()
	n := f.nodes[id]
	down, mute := n.down, n.mute
	f.mu.Unlock()
	if down {
		return nil, errDown
	}
	if mute {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return n, nil
}

func (f *fleet) Propose(ctx context.Context, to ident.NodeID, request cluster.RequestID, _ cluster.Change) (cluster.Answer, error) {
	n, err := f.reach(ctx, to)
	if err != nil {
		return cluster.Answer{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, to)
	if err := f.notLeadingLocked(to); err != nil {
		return cluster.Answer{}, err
	}
	if f.made[request]++; f.made[request] == 1 {
		f.index++
		f.publish(n1, n2, n3)
	}
	if n.lose {
		n.lose = false
		return cluster.Answer{}, errDown
	}
	return cluster.Answer{Index: f.index}, nil
}

func (f *fleet) notLeadingLocked(to ident.NodeID) error {
	if to == f.leader {
		return nil
	}
	e := fault.New(fault.CoordinatorUnavailable, "not the leader").With(cluster.FieldKept, "no")
	if f.leader != (ident.NodeID{}) {
		e = e.With(cluster.FieldLeader, f.leader.String())
	}
	return e
}

func (f *fleet) Renew(ctx context.Context, to ident.NodeID, r cluster.Renewal) (cluster.Lease, error) {
	if _, err := f.reach(ctx, to); err != nil {
		return cluster.Lease{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, to)
	if err := f.notLeadingLocked(to); err != nil {
		return cluster.Lease{}, err
	}
	if r.Life.Epoch != 5 {
		return cluster.Lease{}, fault.New(fault.Fenced, "over")
	}
	return cluster.Lease{For: 2 * time.Second, Leader: to}, nil
}

func (f *fleet) Report(ctx context.Context, to ident.NodeID, _ cluster.Suspicion) error {
	_, err := f.reach(ctx, to)
	return err
}

func (f *fleet) Touch(ctx context.Context, to ident.NodeID, signs []cluster.SignOfLife) (lost cluster.Lost, err error) {
	if _, err := f.reach(ctx, to); err != nil {
		return cluster.Lost{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(signs) > cluster.MaxSigns {
		return cluster.Lost{}, fault.New(fault.Invalid, "too many")
	}
	for i, s := range signs {
		if s.Member == "over" {
			lost.Lives = append(lost.Lives, i)
		}
	}
	return lost, f.notLeadingLocked(to)
}

func (f *fleet) Decided(ctx context.Context, to ident.NodeID) (uint64, error) {
	if _, err := f.reach(ctx, to); err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.index, f.notLeadingLocked(to)
}

func (f *fleet) Progress(ctx context.Context, to ident.NodeID, of cluster.ProgressOf) ([]cluster.GroupProgress, error) {
	n, err := f.reach(ctx, to)
	if err != nil {
		return nil, err
	}
	if _, err := n.feed.Next(ctx, of.After-1); err != nil {
		return nil, fault.New(fault.CoordinatorUnavailable, "not there yet")
	}
	return []cluster.GroupProgress{{Group: of.Groups[0], Reset: n.feed.Snapshot().Index}}, nil
}

func (f *fleet) Watch(ctx context.Context, to ident.NodeID, from uint64, each func(cluster.Message) error) error {
	n, err := f.reach(ctx, to)
	if err != nil {
		return err
	}
	has := cluster.Mark{}
	for {
		f.mu.Lock()
		m := cluster.Message{Leader: f.leader, Heard: n.heard}
		mute := n.mute
		f.mu.Unlock()
		if s := n.feed.Snapshot(); s.Index > has.Index && s.Index > from {
			m.News, has = s.Since(has), s.Mark()
		}
		if !mute {
			if err := each(m); err != nil {
				return err
			}
		}
		wait, cancel := context.WithTimeout(ctx, 250*time.Millisecond)
		_, _ = n.feed.Next(wait, max(has.Index, from)) // or the next beat
		cancel()
		select {
		case <-n.drop:
			return errDown
		default:
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// follow runs a remote that knows two of the coordinators by gossip.
func follow(t *testing.T, f *fleet) (r *control.Remote, end func()) {
	r = control.New(control.Config{Client: f, Known: func() []ident.NodeID { return []ident.NodeID{n1, n2} }})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return r, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestTheFeedOutlivesItsCoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		r, end := follow(t, f)
		defer end()
		if s, err := r.Next(t.Context(), 0); err != nil || s.Index != 1 || r.Leader() != n1 {
			t.Fatal(s, err)
		}
		f.kill(n1)
		f.kill(n2)
		f.set(func() { f.leader = n3; f.index = 7; f.publish(n3) })
		began := time.Now()
		if s, err := r.Next(t.Context(), 1); err != nil || s.Index != 7 { // n3 is known by the snapshot alone
			t.Fatal(s, err)
		}
		if took := time.Since(began); took > time.Second {
			t.Fatalf("after %s", took)
		}
		time.Sleep(time.Second)
		if r.Leader() != n3 {
			t.Fatalf("the leader is still %s", r.Leader())
		}
	})
}

func TestASilentOrDeafCoordinatorIsLeft(t *testing.T) {
	for name, spoil := range map[string]func(*node){
		"silent": func(n *node) { n.mute = true },
		"deaf":   func(n *node) { n.heard = 2 * time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet()
				r, end := follow(t, f)
				defer end()
				if _, err := r.Next(t.Context(), 0); err != nil {
					t.Fatal(err)
				}
				f.set(func() { spoil(f.nodes[n1]); spoil(f.nodes[n2]); f.leader = n3; f.index = 2; f.publish(n3) })
				began := time.Now()
				if _, err := r.Next(t.Context(), 1); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took > 2500*time.Millisecond { // two of them, one after the other
					t.Fatalf("after %s", took)
				}
			})
		})
	}
}

func TestNothingOlderIsApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		f.set(func() { f.index = 9; f.publish(n1) })
		f.kill(n2)
		r, end := follow(t, f)
		defer end()
		if s, err := r.Next(t.Context(), 8); err != nil || s.Index != 9 {
			t.Fatal(s, err)
		}
		f.kill(n1) // the one that is left is at 1
		time.Sleep(5 * time.Second)
		if i := r.Snapshot().Index; i != 9 {
			t.Fatalf("index %d", i)
		}
	})
}

func TestAnotherClustersFeedIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		r, end := follow(t, f)
		defer end()
		if _, err := r.Next(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		for _, n := range f.nodes {
			n.feed.Publish(&cluster.Snapshot{Cluster: ident.ClusterID{2}, Index: 50})
		}
		time.Sleep(3 * time.Second)
		if s := r.Snapshot(); s.Cluster != (ident.ClusterID{1}) || s.Index != 1 {
			t.Fatalf("%+v", s)
		}
	})
}

func TestAChangeFindsItsLeaderAndIsMadeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		f.set(func() { f.leader = n3; f.nodes[n3].lose = true })
		r, end := follow(t, f)
		defer end()
		a, err := r.Propose(t.Context(), cluster.Change{Drain: &cluster.Drain{Node: n1}})
		if err != nil {
			t.Fatal(err)
		}
		if r.Snapshot().Index < a.Index {
			t.Fatal("the feed is behind a change that was answered")
		}
		if len(f.made) != 1 {
			t.Fatalf("%d requests made", len(f.made))
		}
		for _, times := range f.made {
			if times != 2 {
				t.Fatalf("asked %d times of the leader", times)
			}
		}
	})
}

func TestAChangeWaitsForALeaderAndNotForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		f.set(func() { f.leader = ident.NodeID{} })
		r, end := follow(t, f)
		defer end()
		began := time.Now()
		time.AfterFunc(3*time.Second, func() { f.set(func() { f.leader = n2 }) })
		if _, err := r.Propose(t.Context(), cluster.Change{Drain: &cluster.Drain{Node: n1}}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 4*time.Second {
			t.Fatalf("made after %s", took)
		}
		f.set(func() { f.leader = ident.NodeID{} })
		began = time.Now()
		_, err := r.Propose(t.Context(), cluster.Change{Drain: &cluster.Drain{Node: n1}})
		if took := time.Since(began); !fault.Is(err, fault.CoordinatorUnavailable) || took > 12*time.Second {
			t.Fatalf("%v after %s", err, took)
		}
	})
}

func TestARenewalGoesToTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		f.set(func() { f.leader = n2 })
		r := control.New(control.Config{Client: f, Known: func() []ident.NodeID { return []ident.NodeID{n1, n2, n3} }})
		for range 2 { // the first one may find out who leads
			if _, err := r.Renew(t.Context(), cluster.Renewal{Life: cluster.Life{Node: n1, Epoch: 5}}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.Renew(t.Context(), cluster.Renewal{Life: cluster.Life{Node: n1, Epoch: 4}}); !fault.Is(err, fault.Fenced) {
			t.Fatal(err)
		}
		if last := f.asked[len(f.asked)-2:]; last[0] != n2 || last[1] != n2 {
			t.Fatalf("asked %v", f.asked)
		}
		f.kill(n2)
		f.set(func() { f.leader = n3 })
		began := time.Now()
		for {
			_, err := r.Renew(t.Context(), cluster.Renewal{Life: cluster.Life{Node: n1, Epoch: 5}})
			if err == nil {
				break
			}
			time.Sleep(125 * time.Millisecond)
		}
		if took := time.Since(began); took > 500*time.Millisecond {
			t.Fatalf("the next leader was found after %s", took)
		}
		if err := r.Report(t.Context(), cluster.Suspicion{From: n1}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestSignsOfLifeGoToTheLeaderHoweverMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		f.set(func() { f.leader = n2 })
		r := control.New(control.Config{Client: f, Known: func() []ident.NodeID { return []ident.NodeID{n1, n2, n3} }})
		signs := make([]cluster.SignOfLife, 2*cluster.MaxSigns+5)
		want := []int{0, cluster.MaxSigns - 1, cluster.MaxSigns, 2*cluster.MaxSigns + 4}
		for _, i := range want {
			signs[i].Member = "over"
		}
		if lost, err := r.Touch(t.Context(), signs); err != nil || !slices.Equal(lost.Lives, want) {
			t.Fatal(lost, err)
		}
		if lost, err := r.Touch(t.Context(), nil); err != nil || len(lost.Lives) != 0 {
			t.Fatal(lost, err)
		}
		f.set(func() { f.leader = ident.NodeID{} })
		if _, err := r.Touch(t.Context(), signs[:1]); !fault.Is(err, fault.CoordinatorUnavailable) {
			t.Fatal(err)
		}
	})
}

func TestTheLeaderSaysWhatIsDecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		r, end := follow(t, f)
		defer end()
		if _, err := r.Next(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		f.set(func() { f.leader, f.index = n2, 44 }) // whom the one that led before names
		if index, err := r.Decided(t.Context()); err != nil || index != 44 {
			t.Errorf("%d, %v", index, err)
		}
		f.set(func() { f.leader = ident.NodeID{} })
		if _, err := r.Decided(t.Context()); !fault.Is(err, fault.CoordinatorUnavailable) {
			t.Error(err)
		}
	})
}

func TestProgressIsAskedForUntilACoordinatorHasComeToIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		r, end := follow(t, f)
		defer end()
		if _, err := r.Next(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		of := cluster.ProgressOf{After: 7, Groups: []ident.GroupID{{4}}}
		time.AfterFunc(3*time.Second, func() { f.set(func() { f.index = 8; f.publish(n1, n2, n3) }) })
		began := time.Now()
		got, err := r.Progress(t.Context(), of)
		if err != nil || len(got) != 1 || got[0].Reset < 7 {
			t.Fatal(got, err)
		}
		if took := time.Since(began); took < 3*time.Second || took > 4*time.Second {
			t.Fatalf("after %s", took)
		}
		f.kill(n1)
		f.set(func() { f.leader = n2 })
		if got, err = r.Progress(t.Context(), of); err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		of.After = 1000
		if got, err = r.Progress(t.Context(), of); !fault.Is(err, fault.CoordinatorUnavailable) {
			t.Fatal(got, err)
		}
	})
}

// A commit is in no snapshot: nobody waits for one.
func TestACommitDoesNotWaitForTheFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		r := control.New(control.Config{Client: f, Known: func() []ident.NodeID { return []ident.NodeID{n1} }}) // it follows no feed
		began := time.Now()
		if _, err := r.Propose(t.Context(), cluster.Change{Commit: &cluster.Commit{}}); err != nil || time.Since(began) > 0 {
			t.Fatalf("after %s: %v", time.Since(began), err)
		}
		if _, err := r.Propose(t.Context(), cluster.Change{Release: &cluster.Release{}}); err != nil || time.Since(began) < time.Second {
			t.Fatalf("after %s: %v", time.Since(began), err)
		}
	})
}

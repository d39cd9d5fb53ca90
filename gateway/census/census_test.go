package census_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"tidewire/gateway/census"
	"tidewire/gateway/connection"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/feed"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
	"tidewire/internal/testkit/activity"
	"tidewire/internal/testkit/metric"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var here, other, silent, dead = ident.NodeID{1}, ident.NodeID{2}, ident.NodeID{3}, ident.NodeID{4}

// client is a connection that counts how often it was dismissed.
type client struct{ dismissed int }

func (*client) Reading() (int, int64) { return 1, 7 }
func (*client) Expire()               {}
func (c *client) Dismiss()            { c.dismissed++ }

// node is another node, and what it says.
type node struct {
	*census.Backend
	hangs bool
}

func (n node) wait(ctx context.Context) error {
	if !n.hangs {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (n node) Figures(ctx context.Context) ([]byte, error) {
	if err := n.wait(ctx); err != nil {
		return nil, err
	}
	return n.Backend.Figures(ctx)
}

func (n node) Connections(ctx context.Context, principal string) ([]byte, error) {
	if err := n.wait(ctx); err != nil {
		return nil, err
	}
	return n.Backend.Connections(ctx, principal)
}

func (n node) Disconnect(ctx context.Context, id string) (bool, error) {
	if err := n.wait(ctx); err != nil {
		return false, err
	}
	return n.Backend.Disconnect(ctx, id)
}

// scene is four nodes: this one, one that answers, one that does not, a dead one.
type scene struct {
	snapshot *cluster.Snapshot
	clients  map[ident.NodeID]*connection.Set
	figures  map[ident.NodeID]census.Figures
	reg      *prometheus.Registry
	feed     *feed.Feed
	heard    time.Time // a coordinator, last; zero: it is here
	asked    atomic.Int64
	stall    atomic.Int64 // how long the machine keeps whoever looks at the cluster next
	unserved atomic.Int64 // the other node refuses so many times to say where a partition stands
}

// Snapshot is what the feed has; before that, how the scene begins.
func (s *scene) Snapshot() *cluster.Snapshot {
	if d := s.stall.Swap(0); d > 0 {
		time.Sleep(time.Duration(d))
	}
	if now := s.feed.Snapshot(); now.Index > 0 {
		return now
	}
	return s.snapshot
}

func (s *scene) age() time.Duration {
	if s.heard.IsZero() {
		return 0
	}
	return time.Since(s.heard)
}

func newScene() (*scene, *census.Census) {
	s := &scene{clients: map[ident.NodeID]*connection.Set{}, figures: map[ident.NodeID]census.Figures{}, reg: prometheus.NewRegistry(), feed: feed.New()}
	s.snapshot = &cluster.Snapshot{Nodes: map[ident.NodeID]*cluster.Node{}}
	for _, id := range []ident.NodeID{here, other, silent, dead} {
		s.clients[id] = connection.New()
		s.figures[id] = census.Figures{ID: here, Connections: int(id[0]), Disk: census.Disk{Free: 1 << 40}}
		s.snapshot.Nodes[id] = &cluster.Node{ID: id, Name: id.String(), State: cluster.Alive, Roles: []string{"gateway"}}
	}
	s.snapshot.Nodes[dead].State = cluster.Dead
	backend := func(id ident.NodeID) *census.Backend {
		return &census.Backend{Own: func() census.Figures { return s.figures[id] }, Clients: s.clients[id]}
	}
	return s, census.New(census.Config{
		Self: here, Topology: s, Changes: s.feed, Age: s.age, Backend: backend(here), Registerer: s.reg,
		Local: func(p ident.Partition) (rpc.Bounds, error) {
			if p.Index > 1 {
				return rpc.Bounds{HW: 99}, fault.New(fault.LeaderUnavailable, "it is damaged").Lasts()
			}
			return rpc.Bounds{HW: 10 + ident.Offset(p.Index)}, nil
		},
		Peer: func(id ident.NodeID) (census.Peer, error) {
			if id == here || id == dead {
				return nil, errors.New("not to be asked")
			}
			s.asked.Add(1)
			return node{backend(id), id == silent}, nil
		},
		Bounds: func(ctx context.Context, id ident.NodeID, of []ident.Partition) (map[ident.Partition]rpc.BoundsAnswer, error) {
			switch id {
			case silent:
				<-ctx.Done()
				return nil, ctx.Err()
			case dead:
				return nil, fault.New(fault.LeaderUnavailable, "it refuses the connection")
			}
			out := map[ident.Partition]rpc.BoundsAnswer{}
			for _, ref := range of {
				if s.unserved.Add(-1) >= 0 {
					out[ref] = rpc.BoundsAnswer{Err: fault.New(fault.LeaderUnavailable, "it waits for its replicas")}
					continue
				}
				out[ref] = rpc.BoundsAnswer{Bounds: rpc.Bounds{HW: 20 + ident.Offset(ref.Index)}}
			}
			return out, nil
		},
	})
}

func TestWhoDoesNotAnswerInTimeIsLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := newScene()
		began := time.Now()
		got := c.Figures(t.Context())
		if len(got) != 2 || got[here].Connections != 1 || got[other].Connections != 2 || got[other].ID != other || time.Since(began) != 500*time.Millisecond {
			t.Errorf("after %s: %+v", time.Since(began), got)
		}
	})
}

func TestBoundsAreTheLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := newScene()
		topic := &cluster.Topic{ID: ident.TopicID{1}, Name: "orders"}
		for i, leader := range []ident.NodeID{here, other, silent, {}, here} { // the last one is not opened yet
			topic.Partitions = append(topic.Partitions, cluster.Partition{Index: ident.Index(i), Leader: leader})
		}
		began := time.Now()
		got := c.Bounds(t.Context(), topic)
		want := map[ident.Partition]rpc.Bounds{topic.Ref(0): {HW: 10}, topic.Ref(1): {HW: 21}}
		if !maps.Equal(got, want) || time.Since(began) != time.Second {
			t.Errorf("after %s: %v", time.Since(began), got)
		}
	})
}

// A leader that has just begun does not know at first, and then it does.
func TestBoundsOfANewLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newScene()
		topic := &cluster.Topic{ID: ident.TopicID{1}, Name: "orders", Partitions: []cluster.Partition{{Leader: other}}}
		s.snapshot.ByID = map[ident.TopicID]*cluster.Topic{topic.ID: topic}
		s.unserved.Store(3)
		began := time.Now()
		if got := c.Bounds(t.Context(), topic); got[topic.Ref(0)].HW != 20 || time.Since(began) != 150*time.Millisecond {
			t.Errorf("after %s: %v", time.Since(began), got)
		}
		// One that has led before is followed by who leads now.
		before := *topic
		before.Partitions = []cluster.Partition{{Leader: dead}}
		topic.Modified = 1
		if got := c.Bounds(t.Context(), &before); got[topic.Ref(0)].HW != 20 {
			t.Errorf("%v", got)
		}
		// One that has yet to hear that it leads tells what a follower knows: no answer.
		topic.Partitions[0].LeaderEpoch = 2
		if got := c.Bounds(t.Context(), topic); len(got) != 0 {
			t.Errorf("%v", got)
		}
		topic.Partitions[0].LeaderEpoch = 0
		s.unserved.Store(1000)
		began = time.Now()
		if got := c.Bounds(t.Context(), topic); len(got) != 0 || time.Since(began) != time.Second {
			t.Errorf("after %s: %v", time.Since(began), got)
		}
	})
}

// However many want to know, the others are asked a few times a second.
func TestFiguresAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newScene()
		delete(s.snapshot.Nodes, silent)
		for range 1000 {
			if got := c.Figures(t.Context()); len(got) != 2 {
				t.Fatalf("%v", got)
			}
			time.Sleep(time.Millisecond)
		}
		if n := s.asked.Load(); n > 4 {
			t.Errorf("the other node was asked %d times in a second", n)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		time.Sleep(time.Second)
		if got := c.Figures(gone); len(got) < 1 {
			t.Errorf("%v", got)
		}
		if got := c.Figures(t.Context()); len(got) != 2 {
			t.Errorf("who called first has gone, and the others hear nothing: %v", got)
		}
	})
}

// In a large cluster each of the others takes its turn.
func TestALargeClusterIsLookedAtInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newScene()
		delete(s.snapshot.Nodes, silent)
		delete(s.snapshot.Nodes, dead)
		for i := range 63 {
			id := ident.NodeID{byte(10 + i)}
			s.snapshot.Nodes[id] = &cluster.Node{ID: id, State: cluster.Alive}
			s.clients[id] = connection.New()
			s.figures[id] = census.Figures{Disk: census.Disk{Free: 1, Least: 60}}
		}
		activity.Start(t, c.Run)
		time.Sleep(4500 * time.Millisecond)
		if n := s.asked.Load(); n != 5*16 {
			t.Errorf("%d calls in five looks", n)
		}
		if n := len(c.Alerts()); n != 63 {
			t.Errorf("%d of 63 full disks are known", n)
		}
	})
}

func TestAlertsComeAsSoonAsSomethingChanges(t *testing.T) {
	alertsComeAtOnce(t, func(*scene) {})
}

// A machine that keeps one evaluation waiting for a core says nothing of what the next ones
// cost: what happens then is told as soon as ever.
func TestOneEvaluationThatTookLongDelaysNothing(t *testing.T) {
	alertsComeAtOnce(t, func(s *scene) {
		s.stall.Store(int64(400 * time.Millisecond))
		time.Sleep(2 * time.Second)
	})
}

// alertsComeAtOnce says that a node's death is told a moment after it is heard of, whatever
// comes before.
func alertsComeAtOnce(t *testing.T, before func(*scene)) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newScene()
		activity.Start(t, c.Run)
		time.Sleep(10*time.Second + 7*time.Millisecond)
		before(s)
		now := *s.snapshot
		now.Index, now.Nodes = 9, maps.Clone(now.Nodes)
		now.Nodes[other] = &cluster.Node{ID: other, State: cluster.Dead}
		s.feed.Publish(&now)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if got := c.Alerts(); len(got) != 2 {
			t.Errorf("%+v", got)
		}
	})
}

// A node that hears no coordinator is cut off if another one does, or if no other
// gateway answers it; if they are as deaf, the coordinators are down.
func TestWhoIsCutOff(t *testing.T) {
	for name, x := range map[string]struct {
		heard  time.Duration // by this node, before the end
		by     time.Duration // by the other, likewise
		other  bool          // it answers
		cutOff bool
	}{
		"all hear":                  {0, 0, true, false},
		"the other is silent":       {0, 0, false, false},
		"the other hears":           {5 * time.Second, 0, true, true},
		"nobody hears":              {5 * time.Second, 5 * time.Second, true, false},
		"nobody hears, one later":   {5 * time.Second, 4 * time.Second, true, false},
		"nobody hears, one earlier": {5 * time.Second, 50 * time.Second, true, false},
		"nobody answers":            {5 * time.Second, 0, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, c := newScene()
				if x.other {
					s.figures[other] = census.Figures{FeedAge: x.by}
				} else {
					delete(s.snapshot.Nodes, other)
				}
				s.heard = time.Now().Add(3*time.Second - x.heard)
				activity.Start(t, c.Run)
				time.Sleep(3 * time.Second)
				synctest.Wait()
				if got := c.CutOff(); (got != "") != x.cutOff {
					t.Errorf("%q", got)
				}
				down := 0
				for _, a := range c.Alerts() {
					if a.Firing && a.Node == silent {
						down++
					}
				}
				if want := x.heard > 0; (down == 1) != want {
					t.Errorf("%d alerts tell of the silent node", down)
				}
			})
		})
	}
}

func TestConnectionsOfEveryNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newScene()
		clients := map[string]*client{}
		for id, owner := range map[string]string{"a": "ann", "b": ""} {
			clients[id] = &client{}
			s.clients[other].Add(clients[id], id, "websocket", "127.0.0.1:1", owner, time.Time{})
		}
		mine := &client{}
		s.clients[here].Add(mine, "c", "sse", "127.0.0.1:2", "", time.Time{})
		list := func(node ident.NodeID, principal *string) (out []string) {
			infos, err := c.Connections(t.Context(), node, principal)
			if err != nil {
				return []string{"error"}
			}
			for _, i := range infos {
				if i.Subscriptions != 1 || i.Behind != 7 || i.Since.IsZero() || i.Address == "" || i.Transport == "" {
					t.Errorf("%+v", i)
				}
				out = append(out, i.ID)
			}
			slices.Sort(out)
			return out
		}
		ann, nobody := "ann", ""
		for _, w := range []struct {
			node      ident.NodeID
			principal *string
			want      []string
		}{
			{here, nil, []string{"c"}},
			{other, nil, []string{"a", "b"}},
			{other, &ann, []string{"a"}},
			{other, &nobody, []string{"b"}},
			{here, &ann, nil},
			{silent, nil, []string{"error"}},
			{dead, nil, []string{"error"}},
		} {
			if got := list(w.node, w.principal); !slices.Equal(got, w.want) {
				t.Errorf("of node %d: %v, want %v", w.node[0], got, w.want)
			}
		}
		if !c.Dismiss(t.Context(), "a") || !c.Dismiss(t.Context(), "c") || c.Dismiss(t.Context(), "x") || clients["a"].dismissed != 1 || clients["b"].dismissed != 0 || mine.dismissed != 1 {
			t.Error("not what was asked for is closed")
		}
	})
}

func TestAlertsComeOfWhatNodesSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newScene()
		topic := &cluster.Topic{ID: ident.TopicID{1}, Name: "orders", Partitions: []cluster.Partition{{}}}
		s.snapshot.Topics = map[string]*cluster.Topic{"orders": topic}
		s.snapshot.ByID = map[ident.TopicID]*cluster.Topic{topic.ID: topic}
		f := s.figures[other]
		f.Corrupt, f.Disk = []ident.Partition{topic.Ref(0)}, census.Disk{Free: 100, Least: 60}
		s.figures[other] = f
		activity.Start(t, c.Run)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		var got []string
		for _, a := range c.Alerts() {
			got = append(got, a.Alert)
		}
		slices.Sort(got)
		if want := []string{"corrupt-replica", "disk-space", "node-down"}; !slices.Equal(got, want) {
			t.Errorf("%v", got)
		}
		if n := metric.Sum(t, s.reg, "gateway_alerts_firing"); n != 3 {
			t.Errorf("%v are counted", n)
		}
	})
}

// What a node says survives the wire.
func TestFiguresAsTheyTravel(t *testing.T) {
	in := census.Figures{
		ID: other, Started: time.Unix(5, 0).UTC(), Connections: 3, Disk: census.Disk{Used: 1, Free: 2, Least: 3}, Rates: census.Rates{InRecords: 1.5},
		CoordinatorLeader: here, Suspects: []ident.NodeID{silent}, Corrupt: []ident.Partition{{Topic: ident.TopicID{9}, Index: 4}},
	}
	b, err := (&census.Backend{Own: func() census.Figures { return in }}).Figures(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out census.Figures
	if err := json.Unmarshal(b, &out); err != nil || len(out.Suspects) != 1 || out.Suspects[0] != silent || out.Corrupt[0] != in.Corrupt[0] || out.Started != in.Started || out.CoordinatorLeader != here {
		t.Errorf("%s\n%+v, %v", b, out, err)
	}
}

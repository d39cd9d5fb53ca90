package census_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"tidewire/gateway/census"
	"tidewire/gateway/connection"
	"tidewire/internal/cluster"
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
}

func (s *scene) Snapshot() *cluster.Snapshot { return s.snapshot }

func newScene() (*scene, *census.Census) {
	s := &scene{clients: map[ident.NodeID]*connection.Set{}, figures: map[ident.NodeID]census.Figures{}, reg: prometheus.NewRegistry()}
	s.snapshot = &cluster.Snapshot{Nodes: map[ident.NodeID]*cluster.Node{}}
	for _, id := range []ident.NodeID{here, other, silent, dead} {
		s.clients[id] = connection.New()
		s.figures[id] = census.Figures{ID: here, Connections: int(id[0]), Disk: census.Disk{Free: 1 << 40}}
		s.snapshot.Nodes[id] = &cluster.Node{ID: id, Name: id.String(), State: cluster.Alive}
	}
	s.snapshot.Nodes[dead].State = cluster.Dead
	backend := func(id ident.NodeID) *census.Backend {
		return &census.Backend{Own: func() census.Figures { return s.figures[id] }, Clients: s.clients[id], Away: func(bool) {}}
	}
	return s, census.New(census.Config{
		Self: here, Topology: s, Backend: backend(here), Registerer: s.reg,
		Local: func(p ident.Partition) (rpc.Bounds, error) {
			if p.Index > 1 {
				return rpc.Bounds{HW: 99}, errors.New("not served yet")
			}
			return rpc.Bounds{HW: 10 + ident.Offset(p.Index)}, nil
		},
		Peer: func(id ident.NodeID) (census.Peer, error) {
			if id == here || id == dead {
				return nil, errors.New("not to be asked")
			}
			return node{backend(id), id == silent}, nil
		},
		Bounds: func(ctx context.Context, id ident.NodeID, of []ident.Partition) (map[ident.Partition]rpc.Bounds, error) {
			if id == silent {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			out := map[ident.Partition]rpc.Bounds{}
			for _, ref := range of {
				out[ref] = rpc.Bounds{HW: 20 + ident.Offset(ref.Index)}
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

package httpapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"tidewire/gateway/alert"
	"tidewire/gateway/census"
	"tidewire/gateway/connection"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// neighbours is what a node hears of two others, b and c, of which c is silent.
type neighbours struct {
	*census.Census
	dismissed string
	age       time.Duration // of the feed
	suspects  []ident.NodeID
	meanwhile func() // happens while the others are asked; nil: nothing
}

func (n *neighbours) Age() time.Duration { return n.age }

var nodeB, nodeC = ident.NodeID{0xb}, ident.NodeID{0xc}

func (n *neighbours) Figures(ctx context.Context) map[ident.NodeID]census.Figures {
	out := n.Census.Figures(ctx)
	if n.meanwhile != nil {
		n.meanwhile()
	}
	self := out[n.Self()]
	self.CoordinatorLeader = nodeB
	out[n.Self()] = self
	out[nodeB] = census.Figures{ID: nodeB, Started: time.Now(), Connections: 5, Suspects: n.suspects}
	return out
}

func (n *neighbours) Bounds(ctx context.Context, topics ...*cluster.Topic) map[ident.Partition]rpc.Bounds {
	return map[ident.Partition]rpc.Bounds{topics[0].Ref(1): {Start: 3, HW: 9}}
}

func (n *neighbours) Connections(ctx context.Context, node ident.NodeID, principal *string) ([]connection.Info, error) {
	switch node {
	case nodeB:
		return []connection.Info{{ID: "b1", Principal: "ann", Transport: "websocket", Address: "127.0.0.1:1", Since: time.Now()}}, nil
	case nodeC:
		return nil, errors.New("silent")
	}
	return n.Census.Connections(ctx, node, principal)
}

func (n *neighbours) Dismiss(_ context.Context, id string) bool {
	n.dismissed = id
	return id == "b1"
}

func (*neighbours) Alerts() []alert.Alert {
	return []alert.Alert{
		{Alert: alert.UnderReplicated, Firing: true, Since: time.Unix(2, 0), Topic: "orders", Partition: 1, Detail: "d", Advice: "a"},
		{Alert: alert.NodeDown, Since: time.Unix(1, 0), Until: time.Unix(3, 0), Node: nodeC, Detail: "d", Advice: "a"},
	}
}

// newCluster is a node with two neighbours; partition 1 of topic orders is led by
// b and moves to c.
func newCluster(t *testing.T) (*node, *neighbours) {
	others := &neighbours{suspects: []ident.NodeID{nodeC}}
	n := newNode(t, func(c *Config) {
		others.Census = c.Nodes.(*census.Census)
		c.Nodes = others
	})
	n.check = loadDocument(t).check
	n.topic("orders", `"partitions":2`)
	n.memory.change(func(s *cluster.Snapshot) {
		s.Nodes = maps.Clone(s.Nodes)
		s.Nodes[nodeB] = &cluster.Node{ID: nodeB, Name: "node-b", State: cluster.Alive, Roles: []string{"broker"}}
		s.Nodes[nodeC] = &cluster.Node{ID: nodeC, Name: "node-c", State: cluster.Alive, Roles: []string{"broker"}}
		topic := *s.Topics["orders"]
		topic.Partitions = append([]cluster.Partition(nil), topic.Partitions...)
		p := &topic.Partitions[1]
		p.Leader, p.Replicas, p.Adding, p.Removing = nodeB, []ident.NodeID{nodeB, nodeC}, []ident.NodeID{nodeC}, []ident.NodeID{nodeB}
		s.Topics["orders"], s.ByID[topic.ID] = &topic, &topic
	})
	return n, others
}

func TestNodesOfACluster(t *testing.T) {
	n, _ := newCluster(t)
	all := n.want(http.StatusOK, "GET", "/nodes/", "").json(t)
	var got []string
	for _, x := range all["nodes"].([]any) {
		m := x.(map[string]any)
		moves := []string{}
		for _, v := range m["moves"].([]any) {
			v := v.(map[string]any)
			moves = append(moves, fmt.Sprint(v["topic"], "/", v["partition"], " ", v["direction"], " ", v["adding"], v["removing"]))
		}
		got = append(got, fmt.Sprint(m["name"], " ", m["state"], " ", m["connections"], " ", m["coordinator_leader"], " ", m["partitions"], " ", moves))
	}
	want := []string{
		"node-a alive 3 false map[followed:0 led:1] []",
		"node-b alive 5 true map[followed:0 led:1] [orders/1 out [node-c] [node-b]]",
		"node-c suspect <nil> false map[followed:1 led:0] [orders/1 in [node-c] [node-b]]",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || all["coordinator_leader"] != "node-b" {
		t.Errorf("got  %q\nwant %q, led by %v", got, want, all["coordinator_leader"])
	}
	parts := n.want(http.StatusOK, "GET", "/topics/orders/metadata", "").json(t)["layout"].(map[string]any)["partitions"].([]any)
	here, there := parts[0].(map[string]any), parts[1].(map[string]any)
	if here["hw"] != nil || there["hw"] != 9.0 || there["earliest"] != 3.0 || there["leader"] != "node-b" {
		t.Errorf("%v", parts)
	}
}

// Where no coordinator is heard, who answers lives, whatever was said of it, and who
// does not is doubted.
func TestNodesOfAClusterThatHearsNoCoordinator(t *testing.T) {
	n, others := newCluster(t)
	states := func() string {
		all := n.want(http.StatusOK, "GET", "/nodes/", "").json(t)
		var got []string
		for _, x := range all["nodes"].([]any) {
			got = append(got, fmt.Sprint(x.(map[string]any)["state"]))
		}
		return fmt.Sprint(got, " ", all["feed_age"])
	}
	if got := states(); got != "[alive alive suspect] 0s" {
		t.Error(got)
	}
	others.suspects = []ident.NodeID{nodeB}
	others.age = census.StaleAfter - time.Millisecond
	if got := states(); got != "[alive suspect alive] 1.999s" {
		t.Error(got)
	}
	others.age = census.StaleAfter + time.Second
	if got := states(); got != "[alive alive suspect] 3s" {
		t.Error(got)
	}
}

func TestReadyAndNotWell(t *testing.T) {
	n := newNode(t, func(c *Config) { c.Warnings = func() []string { return []string{"no \"coordinator\"", "and more"} } })
	n.check = loadDocument(t).check
	if got := strings.TrimSpace(string(n.want(http.StatusOK, "GET", "/readyz", "").body)); got != `{"status":"ready","warnings":["no \"coordinator\"","and more"]}` {
		t.Error(got)
	}
}

func TestADrainByCall(t *testing.T) {
	n, _ := newCluster(t)
	if d := n.want(http.StatusAccepted, "POST", "/nodes/node-b/drain", `{"cancel":false}`).json(t); d["state"] != "draining" || d["name"] != "node-b" {
		t.Errorf("%v", d)
	}
	if d := n.want(http.StatusAccepted, "POST", "/nodes/node-b/drain", `{"cancel":true}`).json(t); d["state"] != "alive" {
		t.Errorf("%v", d)
	}
}

// A restart ends a drain: a node that starts again while it is asked is not shown as
// drained beside what its new life says.
func TestANodeIsShownInTheLifeThatAnswers(t *testing.T) {
	for path, node := range map[string]func(map[string]any) map[string]any{
		"/nodes/node-b": func(d map[string]any) map[string]any { return d },
		"/nodes/":       func(d map[string]any) map[string]any { return d["nodes"].([]any)[1].(map[string]any) },
	} {
		n, others := newCluster(t)
		state := func(to cluster.NodeState) {
			n.memory.change(func(s *cluster.Snapshot) {
				b := *s.Nodes[nodeB]
				b.State = to
				s.Nodes = maps.Clone(s.Nodes)
				s.Nodes[nodeB] = &b
			})
		}
		state(cluster.DrainingState)
		others.meanwhile = func() { state(cluster.Alive) }
		if b := node(n.want(http.StatusOK, "GET", path, "").json(t)); b["name"] != "node-b" || b["state"] != "alive" || b["uptime"] != "0s" {
			t.Errorf("%s: %v", path, b)
		}
	}
}

func TestConnectionsOfACluster(t *testing.T) {
	n, others := newCluster(t)
	d := n.want(http.StatusOK, "GET", "/connections/", "").json(t)
	list := d["connections"].([]any)
	if len(list) != 1 || list[0].(map[string]any)["node"] != "node-b" || fmt.Sprint(d["missing"]) != "[node-c]" {
		t.Errorf("%v", d)
	}
	if d := n.want(http.StatusOK, "GET", "/connections/?node=node-b", "").json(t); len(d["connections"].([]any)) != 1 || d["missing"] != nil {
		t.Errorf("%v", d)
	}
	n.want(http.StatusNoContent, "DELETE", "/connections/b1", "")
	n.want(http.StatusNotFound, "DELETE", "/connections/b2", "")
	if others.dismissed != "b2" {
		t.Error(others.dismissed)
	}
}

func TestAlertsAsTheyAreTold(t *testing.T) {
	n, _ := newCluster(t)
	got := string(n.want(http.StatusOK, "GET", "/alerts", "").body)
	want := `{"alerts":[{"alert":"under-replicated","state":"firing","since":"1970-01-01T00:00:02.000Z","topic":"orders","partition":1,"detail":"d","advice":"a"},` +
		`{"alert":"node-down","state":"resolved","since":"1970-01-01T00:00:01.000Z","until":"1970-01-01T00:00:03.000Z","node":"node-c","detail":"d","advice":"a"}]}`
	if strings.TrimSpace(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

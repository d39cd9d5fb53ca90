package httpapi

import (
	"bytes"
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"tidewire/gateway/access"
	"tidewire/gateway/census"
	"tidewire/gateway/topology"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/wire"
)

// listNodes is GET /nodes/.
func (a *API) listNodes(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	v := a.nodeView(r.Context())
	all := make([]*cluster.Node, 0, len(v.snapshot.Nodes))
	for _, n := range v.snapshot.Nodes {
		all = append(all, n)
	}
	slices.SortFunc(all, func(x, y *cluster.Node) int {
		if c := strings.Compare(x.Name, y.Name); c != 0 {
			return c
		}
		return strings.Compare(x.ID.String(), y.ID.String())
	})
	b := []byte(`{"nodes":[`)
	for i, n := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = v.appendNode(b, n)
	}
	b = append(b, `],"coordinator_leader":`...)
	b = append(v.appendLeader(b), `,"feed_age":`...)
	return sendJSON(w, http.StatusOK, append(wire.AppendString(b, formatDuration(v.age)), '}'))
}

// describeNode is GET /nodes/{node}, by id or by name.
func (a *API) describeNode(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	n, err := a.node(r.Context(), param(r, "node"))
	if err != nil {
		return err
	}
	v := a.nodeView(r.Context())
	return sendJSON(w, http.StatusOK, v.appendNode(nil, v.latest(n)))
}

// drainNode is POST /nodes/{node}/drain.
func (a *API) drainNode(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	n, err := a.node(r.Context(), param(r, "node"))
	if err != nil {
		return err
	}
	body, err := a.controlBody(w, r)
	if err != nil {
		return err
	}
	cancel := false
	if len(bytes.TrimSpace(body)) > 0 {
		err = wire.Object(body, []string{"cancel"}, func(_ string, v wire.Value) (err error) {
			cancel, err = v.Bool()
			return err
		})
		if err != nil {
			return err
		}
	}
	if err := a.cfg.Control.Drain(r.Context(), n.ID, cancel); err != nil {
		return err
	}
	a.log.Info("draining a node by call", slices.Concat([]any{"node", n.Name, "cancel", cancel}, callerOf(access.Of(r.Context())))...)
	v := a.nodeView(r.Context())
	return sendJSON(w, http.StatusAccepted, v.appendNode(nil, v.latest(n)))
}

// node finds a node by name or id.
func (a *API) node(ctx context.Context, name string) (n *cluster.Node, err error) {
	err = topology.Find(ctx, a.cfg.Topology, func(s *cluster.Snapshot) (err error) {
		n, err = findNode(s, name)
		return err
	})
	return n, err
}

func findNode(s *cluster.Snapshot, name string) (*cluster.Node, error) {
	var found *cluster.Node
	for id, n := range s.Nodes {
		if id.String() == strings.ToLower(name) {
			return n, nil
		}
		if n.Name == name {
			if found != nil {
				return nil, fault.New(fault.NodeNotFound, "more than one node is named %q; ask for one by its id from GET /nodes/", clip(name))
			}
			found = n
		}
	}
	if found == nil {
		return nil, fault.New(fault.NodeNotFound, "there is no node %q, by name or id; GET /nodes/ lists them", clip(name)).With("node", clip(name))
	}
	return found, nil
}

// nodeView writes nodes: what the cluster holds of each, and what each that
// answers says of itself.
type nodeView struct {
	snapshot *cluster.Snapshot
	figures  map[ident.NodeID]census.Figures
	leader   ident.NodeID // of the coordinators; zero: none known
	suspects []ident.NodeID
	age      time.Duration // of what the cluster holds
	names    names
	led      map[ident.NodeID]int
	followed map[ident.NodeID]int
	moves    map[ident.NodeID][]byte
}

func (a *API) nodeView(ctx context.Context) nodeView {
	// First what the nodes say, which takes a while: one that has started again by then
	// must not be shown in the state of the life before.
	figures := a.cfg.Nodes.Figures(ctx)
	s := a.cfg.Topology.Snapshot()
	v := nodeView{
		snapshot: s, figures: figures, names: namesOf(s), age: max(0, a.cfg.Nodes.Age().Truncate(time.Millisecond)),
		led: map[ident.NodeID]int{}, followed: map[ident.NodeID]int{}, moves: map[ident.NodeID][]byte{},
	}
	self := v.figures[a.cfg.Nodes.Self()]
	v.leader, v.suspects = self.CoordinatorLeader, self.Suspects
	if leading, ok := v.figures[v.leader]; ok { // it knows first
		v.suspects = leading.Suspects
	}
	for _, t := range sortedTopics(s) {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			for _, replica := range p.Replicas {
				if replica == p.Leader {
					v.led[replica]++
				} else {
					v.followed[replica]++
				}
			}
			v.addMoves(t, p)
		}
	}
	return v
}

// latest is a node as the view has it; one that has gone meanwhile, as it was.
func (v nodeView) latest(n *cluster.Node) *cluster.Node {
	if now := v.snapshot.Nodes[n.ID]; now != nil {
		return now
	}
	return n
}

func sortedTopics(s *cluster.Snapshot) []*cluster.Topic {
	topics := slices.Collect(maps.Values(s.Topics))
	slices.SortFunc(topics, func(x, y *cluster.Topic) int { return strings.Compare(x.Name, y.Name) })
	return topics
}

// addMoves notes a partition that moves at each node that it moves to or from.
func (v nodeView) addMoves(t *cluster.Topic, p *cluster.Partition) {
	if len(p.Adding) == 0 && len(p.Removing) == 0 {
		return
	}
	add := func(id ident.NodeID, direction string) {
		b := v.moves[id]
		if len(b) > 0 {
			b = append(b, ',')
		}
		v.moves[id] = wire.Begin(b).Str("topic", t.Name).Int("partition", int64(p.Index)).Str("direction", direction).
			Raw("adding", v.names.list(p.Adding)).Raw("removing", v.names.list(p.Removing)).Close()
	}
	for _, id := range p.Adding {
		add(id, "in")
	}
	for _, id := range p.Removing {
		add(id, "out")
	}
}

func (v nodeView) appendLeader(b []byte) []byte {
	if v.leader == (ident.NodeID{}) {
		return append(b, null...)
	}
	return wire.AppendString(b, v.names.of(v.leader))
}

// state is what the cluster holds of a node, but that the leading coordinator may
// have heard ill of it since; and where what the cluster holds is old, a node that does
// not answer this one may be anything.
func (v nodeView) state(n *cluster.Node) cluster.NodeState {
	doubted := slices.Contains(v.suspects, n.ID)
	if v.age > census.StaleAfter { // and so are the doubts
		_, answered := v.figures[n.ID]
		doubted = !answered
	}
	if doubted && n.Serves() && n.State != cluster.DrainingState {
		return cluster.Suspect
	}
	return n.State
}

func (v nodeView) appendNode(b []byte, n *cluster.Node) []byte {
	roles := []byte{'['}
	for i, role := range n.Roles {
		if i > 0 {
			roles = append(roles, ',')
		}
		roles = wire.AppendString(roles, role)
	}
	l := wire.Begin(b).
		Str("id", n.ID.String()).
		Str("name", n.Name).
		Raw("roles", append(roles, ']')).
		Str("zone", n.Zone).
		Str("state", string(v.state(n))).
		Raw("addresses", wire.Begin(nil).
			Str("http", n.Addresses.HTTP).Str("rpc", n.Addresses.RPC).
			Str("raft", n.Addresses.Raft).Str("gossip", n.Addresses.Gossip).Close()).
		Str("version", n.Version).
		Time("since", n.Since.UnixMilli()).
		Raw("partitions", wire.Begin(nil).
			Int("led", int64(v.led[n.ID])).Int("followed", int64(v.followed[n.ID])).Close()).
		Bool("coordinator_leader", n.ID == v.leader).
		Raw("moves", append(append([]byte{'['}, v.moves[n.ID]...), ']'))
	if f, ok := v.figures[n.ID]; ok {
		l.Str("uptime", formatDuration(max(0, time.Since(f.Started)).Truncate(time.Second))).
			Int("connections", int64(f.Connections)).
			Raw("disk", wire.Begin(nil).Int("used", f.Disk.Used).Int("free", f.Disk.Free).Close()).
			Raw("rates", wire.Begin(nil).
				Raw("in_records", rate(f.Rates.InRecords)).Raw("in_bytes", rate(f.Rates.InBytes)).
				Raw("out_messages", rate(f.Rates.OutMessages)).Raw("out_bytes", rate(f.Rates.OutBytes)).Close())
	}
	return l.Close()
}

// rate is a number of JSON with one digit after the point.
func rate(v float64) []byte {
	if !(v >= 0 && v < 1e15) {
		v = 0
	}
	return strconv.AppendFloat(nil, v, 'f', 1, 64)
}

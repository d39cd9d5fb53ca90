package httpapi

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

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
	snapshot := a.cfg.Topology.Snapshot()
	all := make([]*cluster.Node, 0, len(snapshot.Nodes))
	for _, n := range snapshot.Nodes {
		all = append(all, n)
	}
	slices.SortFunc(all, func(x, y *cluster.Node) int {
		if c := strings.Compare(x.Name, y.Name); c != 0 {
			return c
		}
		return strings.Compare(x.ID.String(), y.ID.String())
	})
	v := a.nodeView(snapshot)
	b := []byte(`{"nodes":[`)
	for i, n := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = v.appendNode(b, n)
	}
	b = append(b, `],"coordinator_leader":`...)
	return sendJSON(w, http.StatusOK, append(v.appendLeader(b), '}'))
}

// describeNode is GET /nodes/{node}, by id or by name.
func (a *API) describeNode(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	snapshot := a.cfg.Topology.Snapshot()
	n, err := findNode(snapshot, param(r, "node"))
	if err != nil {
		return err
	}
	return sendJSON(w, http.StatusOK, a.nodeView(snapshot).appendNode(nil, n))
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

// nodeView writes nodes: what the cluster holds of each, and of this node what
// it knows of itself.
type nodeView struct {
	figures  Figures
	names    names
	led      map[ident.NodeID]int
	followed map[ident.NodeID]int
}

func (a *API) nodeView(s *cluster.Snapshot) nodeView {
	v := nodeView{figures: a.cfg.Node.Figures(), names: namesOf(s), led: map[ident.NodeID]int{}, followed: map[ident.NodeID]int{}}
	for _, t := range s.Topics {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			for _, replica := range p.Replicas {
				if replica == p.Leader {
					v.led[replica]++
				} else {
					v.followed[replica]++
				}
			}
		}
	}
	return v
}

func (v nodeView) appendLeader(b []byte) []byte {
	if v.figures.CoordinatorLeader == (ident.NodeID{}) {
		return append(b, null...)
	}
	return wire.AppendString(b, v.names.of(v.figures.CoordinatorLeader))
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
		Str("state", string(n.State)).
		Raw("addresses", wire.Begin(nil).
			Str("http", n.Addresses.HTTP).Str("rpc", n.Addresses.RPC).
			Str("raft", n.Addresses.Raft).Str("gossip", n.Addresses.Gossip).Close()).
		Str("version", n.Version).
		Time("since", n.Since.UnixMilli()).
		Raw("partitions", wire.Begin(nil).
			Int("led", int64(v.led[n.ID])).Int("followed", int64(v.followed[n.ID])).Close()).
		Bool("coordinator_leader", n.ID == v.figures.CoordinatorLeader).
		Raw("moves", []byte("[]"))
	if n.ID == v.figures.ID {
		f := &v.figures
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

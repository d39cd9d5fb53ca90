package httpapi

import (
	"net/http"
	"slices"

	"golang.org/x/sync/errgroup"

	"tidewire/gateway/access"
	"tidewire/gateway/connection"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/obs"
	"tidewire/internal/wire"
)

// listConnections is GET /connections/.
func (a *API) listConnections(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r, "node", "principal")
	if err != nil {
		return err
	}
	nodes := []ident.NodeID{a.cfg.Nodes.Self()}
	name, one := q.get("node")
	if one {
		n, err := a.node(r.Context(), name)
		if err != nil {
			return err
		}
		nodes[0] = n.ID
	}
	snapshot := a.cfg.Topology.Snapshot()
	if !one {
		for id, n := range snapshot.Nodes {
			if id != nodes[0] && n.State != cluster.Dead {
				nodes = append(nodes, id)
			}
		}
		slices.SortFunc(nodes[1:], func(x, y ident.NodeID) int { return slices.Compare(x[:], y[:]) })
	}
	var principal *string
	if p, ok := q.get("principal"); ok {
		principal = &p
	}
	share := a.cfg.Held.Share()
	defer share.Close()
	out := heldAnswer{ctx: r.Context(), share: share}
	if err := out.add([]byte(`{"connections":[`)); err != nil {
		return err
	}
	missing, err := a.appendConnections(&out, namesOf(snapshot), nodes, principal)
	if err != nil {
		return err
	}
	end := []byte("]")
	if len(missing) > 0 {
		end = append(append(end, `,"missing":`...), namesOf(snapshot).list(missing)...)
	}
	if err := out.add(append(end, "}\n"...)); err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	_ = writePieces(w, out.pieces, share) // the client is gone: nobody to tell
	return nil
}

// connectionBytes is about what it takes to know of one connection.
const connectionBytes = 256

// nodesAsked is how many nodes are asked for their connections at once.
const nodesAsked = 16

// appendConnections lists those of some nodes; missing are those that did not
// answer.
func (a *API) appendConnections(out *heldAnswer, names names, nodes []ident.NodeID, principal *string) (missing []ident.NodeID, err error) {
	lists := make([][]connection.Info, len(nodes))
	failed := make([]bool, len(nodes))
	var g errgroup.Group
	g.SetLimit(nodesAsked)
	for i, id := range nodes {
		g.Go(func() error {
			list, err := a.cfg.Nodes.Connections(out.ctx, id, principal)
			lists[i], failed[i] = list, err != nil
			return nil
		})
	}
	_ = g.Wait() // none fails
	var one []byte
	first := true
	for i, id := range nodes {
		if failed[i] {
			missing = append(missing, id)
		}
		aside := int64(connectionBytes * len(lists[i]))
		if err := out.share.Need(out.ctx, aside, heldPatience); err != nil {
			return nil, err
		}
		for _, c := range lists[i] {
			if one = one[:0]; !first {
				one = append(one, ',')
			}
			first = false
			one = wire.Begin(one).
				Str("connection", c.ID).Str("node", names.of(id)).Str("principal", c.Principal).Str("transport", c.Transport).
				Str("address", c.Address).Time("since", c.Since.UnixMilli()).Int("subscriptions", int64(c.Subscriptions)).
				Raw("in_rate", rate(c.InRate)).Raw("out_rate", rate(c.OutRate)).Int("behind", c.Behind).Close()
			if err := out.add(one); err != nil {
				return nil, err
			}
		}
		lists[i] = nil
		out.share.Give(aside)
	}
	return missing, nil
}

// dismissConnection is DELETE /connections/{connection}.
func (a *API) dismissConnection(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	id := param(r, "connection")
	if !a.cfg.Nodes.Dismiss(r.Context(), id) {
		return fault.New(fault.NotFound, "there is no connection %q; GET /connections/ lists them", clip(id)).With("connection", clip(id))
	}
	a.log.Info("closing a connection by call", slices.Concat([]any{obs.Connection, id}, callerOf(access.Of(r.Context())))...)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// callerOf names a caller in a log line.
func callerOf(g *access.Grant) []any {
	if !g.Asked() {
		return nil
	}
	return []any{"principal", g.Principal}
}

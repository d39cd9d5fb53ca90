package httpapi

import (
	"net/http"
	"slices"

	"tidewire/gateway/access"
	"tidewire/internal/fault"
	"tidewire/internal/obs"
	"tidewire/internal/wire"
)

// listConnections is GET /connections/.
func (a *API) listConnections(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r, "node", "principal")
	if err != nil {
		return err
	}
	snapshot := a.cfg.Topology.Snapshot()
	self := a.cfg.Node.Figures().ID
	here := true
	if name, ok := q.get("node"); ok {
		n, err := findNode(snapshot, name)
		if err != nil {
			return err
		}
		here = n.ID == self // each node knows its own connections
	}
	var principal *string
	if p, ok := q.get("principal"); ok {
		principal = &p
	}
	b := []byte(`{"connections":[`)
	if here {
		node := namesOf(snapshot).of(self)
		for i, c := range a.cfg.Connections.List(principal) {
			if i > 0 {
				b = append(b, ',')
			}
			b = wire.Begin(b).
				Str("connection", c.ID).Str("node", node).Str("principal", c.Principal).Str("transport", c.Transport).
				Str("address", c.Address).Time("since", c.Since.UnixMilli()).Int("subscriptions", int64(c.Subscriptions)).
				Raw("in_rate", rate(c.InRate)).Raw("out_rate", rate(c.OutRate)).Int("behind", c.Behind).Close()
		}
	}
	return sendJSON(w, http.StatusOK, append(b, "]}"...))
}

// dismissConnection is DELETE /connections/{connection}.
func (a *API) dismissConnection(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	id := param(r, "connection")
	if !a.cfg.Connections.Dismiss(id) {
		return fault.New(fault.NotFound, "there is no connection %q on this node; GET /connections/ lists them", clip(id)).With("connection", clip(id))
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

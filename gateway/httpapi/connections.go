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
	share := a.cfg.Held.Share()
	defer share.Close()
	out := heldAnswer{ctx: r.Context(), share: share}
	if err := out.add([]byte(`{"connections":[`)); err != nil {
		return err
	}
	if here {
		if err := a.appendConnections(&out, namesOf(snapshot).of(self), principal); err != nil {
			return err
		}
	}
	if err := out.add([]byte("]}\n")); err != nil {
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

func (a *API) appendConnections(out *heldAnswer, node string, principal *string) error {
	aside := int64(connectionBytes * a.cfg.Connections.Len())
	if err := out.share.Need(out.ctx, aside, heldPatience); err != nil {
		return err
	}
	defer out.share.Give(aside)
	var one []byte
	for i, c := range a.cfg.Connections.List(principal) {
		if one = one[:0]; i > 0 {
			one = append(one, ',')
		}
		one = wire.Begin(one).
			Str("connection", c.ID).Str("node", node).Str("principal", c.Principal).Str("transport", c.Transport).
			Str("address", c.Address).Time("since", c.Since.UnixMilli()).Int("subscriptions", int64(c.Subscriptions)).
			Raw("in_rate", rate(c.InRate)).Raw("out_rate", rate(c.OutRate)).Int("behind", c.Behind).Close()
		if err := out.add(one); err != nil {
			return err
		}
	}
	return nil
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

package httpapi

import (
	"net/http"

	"tidewire/internal/ident"
	"tidewire/internal/wire"
)

// listAlerts is GET /alerts.
func (a *API) listAlerts(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	share := a.cfg.Held.Share()
	defer share.Close()
	out := heldAnswer{ctx: r.Context(), share: share}
	names := namesOf(a.cfg.Topology.Snapshot())
	one := []byte(`{"alerts":[`)
	for i, x := range a.cfg.Nodes.Alerts() {
		if i > 0 {
			one = append(one[:0], ',')
		}
		state := "resolved"
		if x.Firing {
			state = "firing"
		}
		l := wire.Begin(one).Str("alert", x.Alert).Str("state", state).Time("since", x.Since.UnixMilli())
		if !x.Until.IsZero() {
			l.Time("until", x.Until.UnixMilli())
		}
		if x.Topic != "" {
			l.Str("topic", x.Topic).Int("partition", int64(x.Partition))
		}
		if x.Group != "" {
			l.Str("group", x.Group)
		}
		if x.Node != (ident.NodeID{}) {
			l.Str("node", names.of(x.Node))
		}
		one = l.Str("detail", x.Detail).Str("advice", x.Advice).Close()
		if err := out.add(one); err != nil {
			return err
		}
		one = one[:0]
	}
	if err := out.add(append(one, "]}\n"...)); err != nil {
		return err
	}
	h := w.Header()
	h["Content-Type"], h["Cache-Control"] = typeJSON, noStore
	w.WriteHeader(http.StatusOK)
	_ = writePieces(w, out.pieces, share) // the client is gone: nobody to tell
	return nil
}

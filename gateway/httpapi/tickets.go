package httpapi

import (
	"net/http"

	"tidewire/gateway/access"
	"tidewire/internal/fault"
	"tidewire/internal/wire"
)

// issueTicket is POST /tickets: a token in, something out that may stand in an
// address for a moment.
func (a *API) issueTicket(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	if a.cfg.Guard.Open() {
		return fault.New(fault.NotFound, "this node has no tickets, and needs none: it has no auth_key_file and asks nobody who they are")
	}
	body, err := a.controlBody(w, r)
	if err != nil {
		return err
	}
	if len(body) > 0 {
		if err := wire.Object(body, nil, func(string, wire.Value) error { return nil }); err != nil {
			return err
		}
	}
	ticket, until, err := a.cfg.Guard.Ticket(access.Of(r.Context()))
	if err != nil {
		return err
	}
	return sendJSON(w, http.StatusCreated, wire.Begin(nil).Str("ticket", ticket).Time("expires", until.UnixMilli()).Close())
}

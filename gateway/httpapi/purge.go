package httpapi

import (
	"net/http"
	"slices"

	"tidewire/gateway/access"
	"tidewire/gateway/topology"
	"tidewire/internal/wire"
)

// purgeTopic is POST /topics/{topic}/purge.
func (a *API) purgeTopic(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	name, err := a.ownTopic(r)
	if err != nil {
		return err
	}
	body, err := a.controlBody(w, r)
	if err != nil {
		return err
	}
	p, err := wire.ParsePurge(body)
	if err != nil {
		return err
	}
	t, err := topology.Topic(r.Context(), a.cfg.Topology, name)
	if err != nil {
		return err
	}
	begin, err := a.cfg.Control.PurgeTopic(r.Context(), t, p.Before)
	if err != nil {
		return err
	}
	a.log.Info("records were purged by call", slices.Concat([]any{"topic", t.Name, "partitions", len(begin)}, callerOf(access.Of(r.Context())))...)
	list := []byte{'['}
	for i, at := range begin {
		if i > 0 {
			list = append(list, ',')
		}
		list = wire.Begin(list).Int("partition", int64(at.Partition)).Int("earliest", int64(at.Offset)).Close()
	}
	return sendJSON(w, http.StatusOK, wire.Begin(nil).Str("topic", t.Name).Raw("partitions", append(list, ']')).Close())
}

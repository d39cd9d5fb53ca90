package httpapi

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"tidewire/gateway/access"
	"tidewire/gateway/budget"
	"tidewire/gateway/topology"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// listTopics is GET /topics/.
func (a *API) listTopics(w http.ResponseWriter, r *http.Request) error {
	if err := noTopicQuery(r); err != nil {
		return err
	}
	snapshot := topology.Latest(r.Context(), a.cfg.Topology)
	topics := make([]*cluster.Topic, 0, len(snapshot.Topics))
	caller := access.Of(r.Context())
	for _, t := range snapshot.Topics {
		if caller.Sees(t.Name) {
			topics = append(topics, t)
		}
	}
	slices.SortFunc(topics, func(x, y *cluster.Topic) int { return strings.Compare(x.Name, y.Name) })
	share := a.cfg.Held.Share()
	defer share.Close()
	pieces, err := a.topicList(r.Context(), share, snapshot, topics)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	_ = writePieces(w, pieces, share) // the client is gone: nobody to tell
	return nil
}

// loadBytes is about what it takes to know where one partition stands.
const loadBytes = 192

// topicList describes topics. What it needs besides the answer is given back
// before that is written.
func (a *API) topicList(ctx context.Context, share *budget.Share, s *cluster.Snapshot, topics []*cluster.Topic) ([][]byte, error) {
	partitions := 0
	for _, t := range topics {
		partitions += len(t.Partitions)
	}
	aside := int64(loadBytes * partitions)
	if err := share.Need(ctx, aside, heldPatience); err != nil {
		return nil, err
	}
	defer share.Give(aside)
	d := a.describer(ctx, s, topics...)
	out := heldAnswer{ctx: ctx, share: share}
	var one []byte
	for i, t := range topics {
		one = append(one[:0], ',')
		if i == 0 {
			one = append(one[:0], `{"topics":[`...)
		}
		one = d.appendTopic(one, t)
		if err := out.add(one); err != nil {
			return nil, err
		}
	}
	end := "]}\n"
	if len(topics) == 0 {
		end = `{"topics":[` + end
	}
	err := out.add([]byte(end))
	return out.pieces, err
}

// createTopic is POST /topics/.
func (a *API) createTopic(w http.ResponseWriter, r *http.Request) error {
	if err := noTopicQuery(r); err != nil {
		return err
	}
	body, err := a.controlBody(w, r)
	if err != nil {
		return err
	}
	spec, err := parseSpec(body)
	if err == nil {
		err = writableName("name", spec.Name)
	}
	if err != nil {
		return err
	}
	t, created, err := a.cfg.Control.CreateTopic(r.Context(), spec)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
		w.Header().Set("Location", "/topics/"+url.PathEscape(t.Name)+"/metadata")
	}
	return sendJSON(w, status, a.describer(r.Context(), a.cfg.Topology.Snapshot(), t).appendTopic(nil, t))
}

// noTopicQuery is for the calls at /topics, which have no parameters. Those of a
// topic's own calls come here where its name is empty.
func noTopicQuery(r *http.Request) error {
	err := noQuery(r)
	f := fault.As(err)
	if f == nil || f.Kind != fault.UnknownField {
		return err
	}
	name, _ := f.Fields["field"].(string)
	if slices.Contains(pollParameters, name) || slices.Contains(produceParameters, name) {
		return fault.New(fault.UnknownField, "unknown parameter %q: this address names no topic, so it is about all of them; %s /topics/{topic}, with a name that is not empty, has the parameter", name, r.Method).
			With("field", name)
	}
	return err
}

// writableName says why clients cannot create or change a topic of this name.
func writableName(field, name string) error {
	return named(field, ident.CheckTopicName(name))
}

// named is the error for a name that cannot be; nil stays nil.
func named(field string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ident.ErrReserved):
		return fault.New(fault.ReservedName, "%w", err).With("field", field)
	}
	return fault.New(fault.Invalid, "%w", err).With("field", field)
}

// ownTopic is the topic of a call that changes it.
func (a *API) ownTopic(r *http.Request) (string, error) {
	name := param(r, "topic")
	if strings.HasPrefix(name, "_") {
		return "", writableName("topic", name)
	}
	t, err := topology.Topic(r.Context(), a.cfg.Topology, name)
	if err != nil {
		return "", err
	}
	return t.Name, nil
}

// describeTopic is GET /topics/{topic}/metadata.
func (a *API) describeTopic(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	name := param(r, "topic")
	if err := access.Of(r.Context()).Knows(name); err != nil {
		return err
	}
	t, err := topology.Topic(r.Context(), a.cfg.Topology, name)
	if err != nil {
		return err
	}
	return sendJSON(w, http.StatusOK, a.describer(r.Context(), a.cfg.Topology.Snapshot(), t).appendTopic(nil, t))
}

// alterTopic is PATCH /topics/{topic}.
func (a *API) alterTopic(w http.ResponseWriter, r *http.Request) error {
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
	patch, err := parsePatch(body)
	if err != nil {
		return err
	}
	t, err := a.cfg.Control.AlterTopic(r.Context(), name, patch)
	if f := fault.As(err); err != nil && f.Kind == fault.Invalid && f.Fields["field"] == "min_insync" && patch.MinInsync == nil {
		// It was not given, and does not go with what was.
		return fault.New(fault.Invalid, "%s: give a min_insync with it that goes with the number of replicas", f.Detail()).With("field", "min_insync").With("allowed", f.Fields["allowed"])
	}
	if err != nil {
		return err
	}
	return sendJSON(w, http.StatusOK, a.describer(r.Context(), a.cfg.Topology.Snapshot(), t).appendTopic(nil, t))
}

// deleteTopic is DELETE /topics/{topic}.
func (a *API) deleteTopic(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	name, err := a.ownTopic(r)
	if err != nil {
		return err
	}
	if err := a.cfg.Control.DeleteTopic(r.Context(), name); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// sendJSON answers with one JSON value.
func sendJSON(w http.ResponseWriter, status int, b []byte) error {
	h := w.Header()
	h["Content-Type"], h["Cache-Control"] = typeJSON, noStore
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // the client is gone: nobody to tell
	return nil
}

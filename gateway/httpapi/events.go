package httpapi

import (
	"mime"
	"net/http"
	"strconv"
	"strings"

	"tidewire/gateway/access"
	"tidewire/gateway/deliver"
	"tidewire/gateway/topology"
	"tidewire/internal/wire"
)

const eventStream = "text/event-stream"

// events is GET /topics/{topic}/events.
func (a *API) events(w http.ResponseWriter, r *http.Request) error {
	t, err := topology.Topic(r.Context(), a.cfg.Topology, param(r, "topic"))
	if err != nil {
		return err
	}
	q, err := query(r, append([]string{"last_event_id"}, placeParameters...)...)
	if err != nil {
		return err
	}
	place, err := q.place(t)
	if err != nil {
		return err
	}
	resumeFrom(&place, r, q)
	return a.stream(w, r, place)
}

// resumeFrom lets the last event seen win over everything else that says where
// to begin: a browser that comes back sends the same address again, and with it
// what it has seen. The header is the newer of the two.
func resumeFrom(place *deliver.Request, r *http.Request, q params) {
	last := r.Header.Get("Last-Event-ID")
	if last == "" {
		last, _ = q.get("last_event_id")
	}
	if last != "" {
		place.Cursor, place.HasCursor, place.From, place.After = last, true, "", nil
	}
}

// stream answers with server-sent events.
func (a *API) stream(w http.ResponseWriter, r *http.Request, place deliver.Request) error {
	if err := a.ownRead(r); err != nil {
		return err
	}
	if err := a.cfg.Streams.Admit(); err != nil {
		return err
	}
	start, err := a.resolve(r, place)
	if err != nil {
		return err
	}
	return a.cfg.Streams.Serve(w, r, start)
}

func (a *API) resolve(r *http.Request, place deliver.Request) (deliver.Start, error) {
	place.DefaultFrom = deliver.Latest
	return a.cfg.Reader.Resolve(r.Context(), place)
}

// subscribe is POST /topics/subscribe: the stream itself, or an address for it
// that any gateway serves.
func (a *API) subscribe(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	body, err := a.controlBody(w, r)
	if err != nil {
		return err
	}
	f, err := wire.ParseSubscribe(body)
	if err != nil {
		return err
	}
	if err := access.Of(r.Context()).May(access.Subscribe, f.Topic); err != nil {
		return err
	}
	t, err := topology.Topic(r.Context(), a.cfg.Topology, f.Topic)
	if err != nil {
		return err
	}
	place := deliver.Request{
		Topic: t, Filter: deliver.NewFilter(f.Partition, f.Key, nil, f.KeyPrefix),
		From: f.From, Cursor: f.Cursor, HasCursor: f.HasCursor,
	}
	if accepts(r, eventStream) {
		resumeFrom(&place, r, nil)
		return a.stream(w, r, place)
	}
	start, err := a.resolve(r, place)
	if err != nil {
		return err
	}
	if start.Gap != nil {
		return start.Gap.Fault()
	}
	id := deliver.ReferenceTo(start).String()
	partitions := []byte{'['}
	for i, p := range start.Places {
		if i > 0 {
			partitions = append(partitions, ',')
		}
		partitions = strconv.AppendUint(partitions, uint64(p.Partition), 10)
	}
	address := "/subscriptions/" + id + "/events"
	w.Header().Set("Location", address)
	return sendJSON(w, http.StatusCreated, wire.Begin(nil).
		Str("subscription", id).Str("events", address).Str("websocket", "/ws?subscription="+id).
		Raw("partitions", append(partitions, ']')).Close())
}

// subscriptionEvents is GET /subscriptions/{id}/events.
func (a *API) subscriptionEvents(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r, "last_event_id")
	if err != nil {
		return err
	}
	ref, err := deliver.ParseReference(param(r, "subscription"))
	if err != nil {
		return err
	}
	if err := access.Of(r.Context()).May(access.Subscribe, ref.Topic); err != nil {
		return err
	}
	t, err := topology.Topic(r.Context(), a.cfg.Topology, ref.Topic)
	if err != nil {
		return err
	}
	place := ref.Request(t)
	resumeFrom(&place, r, q)
	return a.stream(w, r, place)
}

// accepts reports whether the client asks for a media type by its name.
func accepts(r *http.Request, want string) bool {
	for _, line := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(line, ",") {
			t, extra, err := mime.ParseMediaType(part)
			if q, zero := strconv.ParseFloat(extra["q"], 64); err == nil && t == want && (zero != nil || q > 0) {
				return true
			}
		}
	}
	return false
}

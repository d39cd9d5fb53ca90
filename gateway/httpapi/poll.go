package httpapi

import (
	"context"
	"net/http"
	"strconv"

	"tidewire/gateway/deliver"
	"tidewire/gateway/reply"
	"tidewire/gateway/topology"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/wire"
)

// poll is GET /topics/{topic}: one answer, at once or as soon as there is
// something.
func (a *API) poll(w http.ResponseWriter, r *http.Request) error {
	t, err := topology.Topic(r.Context(), a.cfg.Topology, param(r, "topic"))
	if err != nil {
		return err
	}
	q, err := query(r, pollParameters...)
	if err != nil {
		return err
	}
	req, err := q.pollBounds()
	if err != nil {
		return err
	}
	req.Wait = whileGranted(r, req.Wait)
	// A node that drains ends waits, not work.
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(a.drain, cancel)()

	res, err := a.readOnce(ctx, q, t, req)
	switch {
	case err == nil:
		if res.Held != nil {
			defer res.Held.Close()
		}
		sendPoll(w, &res)
		return nil
	case a.drain.Err() != nil:
		return fault.New(fault.Draining, "the node is shutting down; ask another, or again in a moment")
	}
	return err
}

func (a *API) readOnce(ctx context.Context, q params, t *cluster.Topic, req deliver.PollRequest) (deliver.PollResult, error) {
	place, err := q.place(t)
	if err != nil {
		return deliver.PollResult{}, err
	}
	place.DefaultFrom = deliver.Earliest
	if req.Start, err = a.cfg.Reader.Resolve(ctx, place); err != nil {
		return deliver.PollResult{}, err
	}
	return a.cfg.Reader.Poll(ctx, req)
}

func (p params) pollBounds() (req deliver.PollRequest, err error) {
	if req.Limit, err = p.integer("limit", 1, deliver.MaxPollLimit, deliver.DefaultPollLimit); err != nil {
		return req, err
	}
	if req.MaxBytes, err = p.integer("max_bytes", 1, deliver.MaxPollBytes, deliver.DefaultPollBytes); err != nil {
		return req, err
	}
	if s, ok := p.get("wait"); ok {
		req.Wait, err = duration("wait", s, 0, deliver.MaxPollWait)
	}
	return req, err
}

// sendPoll writes the answer around the messages, which are JSON already.
func sendPoll(w http.ResponseWriter, res *deliver.PollResult) {
	const head = `{"messages":[`
	tail := append([]byte(`],"cursor":"`), res.Cursor...) // letters, digits, - and _
	tail = append(tail, `","end":`...)
	tail = appendUnavailable(strconv.AppendBool(tail, res.End), res.Unavailable)
	tail = append(tail, "}\n"...)
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	length := len(head) + len(tail)
	for _, piece := range res.Messages {
		length += len(piece)
	}
	h.Set("Content-Length", strconv.Itoa(length))
	w.WriteHeader(http.StatusOK)
	if _, err := w.Write([]byte(head)); err != nil {
		return // the client is gone: nobody to tell
	}
	if writePieces(w, res.Messages, res.Held) == nil {
		_, _ = w.Write(tail)
	}
}

// appendUnavailable names the partitions that could not be read.
func appendUnavailable(b []byte, list []deliver.Unavailable) []byte {
	if len(list) == 0 {
		return b
	}
	b = append(b, `,"unavailable":[`...)
	for i, u := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = wire.Begin(b).Int("partition", int64(u.Partition)).Raw("problem", reply.Problem(u.Err)).Close()
	}
	return append(b, ']')
}

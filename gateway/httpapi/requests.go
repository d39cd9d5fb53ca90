package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"tidewire/gateway/access"
	"tidewire/gateway/ask"
	"tidewire/gateway/budget"
	"tidewire/gateway/reply"
	"tidewire/gateway/topology"
	"tidewire/internal/fault"
	"tidewire/internal/inbox"
	"tidewire/internal/record"
	"tidewire/internal/wire"
)

// Asker is request-reply; *ask.Ask is.
type Asker interface {
	Begin(ctx context.Context, q ask.Request, client ask.Client) (*ask.Call, error)
	// Find reads an inbox, for who has the right to reply there.
	Find(ctx context.Context, caller *access.Grant, to string) (ask.Dest, error)
	Reply(ctx context.Context, d ask.Dest, r *inbox.Reply) error
}

const (
	statusHeader = "Tidewire-Status"
	// replyPolicy keeps a page that a responder sent from acting as one of this node's.
	replyPolicy = apiPolicy + "; sandbox"
)

// requestHeaders are the headers of a request that are ours; replyHeaders of a reply.
var (
	requestHeaders = []string{"Tidewire-Key", "Tidewire-Timeout", ask.CorrelationID, "Tidewire-H-<name>"}
	replyHeaders   = []string{statusHeader, "Tidewire-H-<name>"}
)

// request is POST /requests/{topic}.
func (a *API) request(w http.ResponseWriter, r *http.Request) error {
	c := produceCall{caller: access.Of(r.Context()), client: a.cfg.Quota.OfRequest(r)}
	name := param(r, "topic")
	if strings.HasPrefix(name, "_") {
		return fault.New(fault.ReservedName, "topic %q is the cluster's own: readable, not writable", clip(name)).With("field", "topic")
	}
	var err error
	if c.topic, err = topology.Topic(r.Context(), a.cfg.Topology, name); err != nil {
		return err
	}
	q, err := query(r, "key", "timeout")
	if err != nil {
		return err
	}
	given, err := c.readHeaders(r.Header, requestHeaders)
	if err != nil {
		return err
	}
	if err := c.readParameters(q, given, maxRequestTimeout); err != nil {
		return err
	}
	id, named := given[ask.CorrelationID]
	if named {
		if err := ask.CheckCorrelation(id); err != nil {
			return err
		}
	}
	if err := a.cfg.Quota.Take(c.client); err != nil {
		return err
	}
	share := a.cfg.Held.Share()
	defer share.Close()
	rec, err := readOne(w, r, &c, share)
	if err != nil {
		return err
	}
	if rest := grantedFor(c.caller); rest > 0 { // what comes later is not for this caller any more
		if c.timeout == 0 {
			c.timeout = inbox.DefaultTimeout
		}
		c.timeout = max(min(c.timeout, rest), inbox.MinTimeout)
	}
	waits := &asking{accepted: make(chan ask.Accepted, 1), ended: make(chan struct{})}
	call, err := a.cfg.Ask.Begin(r.Context(), ask.Request{Topic: c.topic.Name, Record: rec, Principal: c.caller.Principal, Correlation: id, Timeout: c.timeout}, waits)
	if err != nil {
		return err
	}
	share.Close() // the publisher has a copy, and counts it
	w.Header().Set(ask.CorrelationID, call.Correlation())
	if accepts(r, ndjsonType) {
		return waits.lines(w, r, call)
	}
	return waits.answer(w, r, call)
}

// maxRequestTimeout is how long a request may wait for its reply.
const maxRequestTimeout = inbox.MaxTimeout

// readOne reads a body that is one value. It is refused for what it is, or did not arrive.
func readOne(w http.ResponseWriter, r *http.Request, c *produceCall, share *budget.Share) (rec record.Record, err error) {
	if c.mediaType, err = mediaType(r); err != nil {
		return rec, err
	}
	c.contentType = r.Header.Get("Content-Type")
	rec, refusal, err := readRecord(w, r, c, nil, share)
	if err == nil {
		err = refusal
	}
	return rec, err
}

// asking is a request whose client waits.
type asking struct {
	accepted chan ask.Accepted
	ended    chan struct{} // closed when there is an end
	reply    *inbox.Reply
	err      error
}

// Accepted is of ask.Client.
func (x *asking) Accepted(at ask.Accepted) { x.accepted <- at }

// Answered is of ask.Client.
func (x *asking) Answered(r *inbox.Reply, err error) {
	if x.err = err; r != nil {
		x.reply = r.Clone()
	}
	close(x.ended)
}

// leave gives a request up whose client has gone. Nobody is to take what it gets for an
// answer.
func leave(call *ask.Call) {
	call.Leave()
	panic(http.ErrAbortHandler)
}

// answer waits for the reply, and answers as the responder did.
func (x *asking) answer(w http.ResponseWriter, r *http.Request, call *ask.Call) error {
	select {
	case <-x.ended:
	case <-r.Context().Done():
		leave(call)
	}
	if x.err != nil {
		return x.err
	}
	h := w.Header()
	h["Cache-Control"] = noStore
	h.Set("Content-Security-Policy", replyPolicy)
	h.Set("Content-Type", x.reply.ContentType)
	h.Set("Content-Length", strconv.Itoa(len(x.reply.Value)))
	for _, f := range x.reply.Headers {
		h.Set("Tidewire-H-"+f.Name, f.Value)
		if list := h.Get(exposeHeader); list != "" { // a page of another origin sees no header that is not named
			h.Set(exposeHeader, list+", Tidewire-H-"+f.Name)
		}
	}
	status := http.StatusOK
	if x.reply.Status != 0 {
		status = x.reply.Status
		h.Set(statusHeader, strconv.Itoa(status)) // it is the responder's, not ours
	}
	w.WriteHeader(status)
	_, _ = w.Write(x.reply.Value) // a failure means that nobody listens any more
	return nil
}

// lines answers in two lines: that the request is kept, and how it ends.
func (x *asking) lines(w http.ResponseWriter, r *http.Request, call *ask.Call) error {
	control := http.NewResponseController(w)
	begun := false
	begin := func(at ask.Accepted) {
		begun = true
		h := w.Header()
		h.Set("Content-Type", ndjsonType)
		h["Cache-Control"] = noStore
		w.WriteHeader(http.StatusOK)
		line := wire.Open(nil, "accepted").Int("partition", int64(at.Partition)).Int("offset", int64(at.Offset)).
			Str("correlation", at.Correlation).Bool("duplicate", at.Duplicate).Close()
		_, _ = w.Write(append(line, '\n')) // whether anybody listens the context says
		_ = control.Flush()
	}
	select {
	case at := <-x.accepted:
		begin(at)
	case <-x.ended:
	case <-r.Context().Done():
		leave(call)
	}
	select {
	case <-x.ended:
	case <-r.Context().Done():
		leave(call)
	}
	if !begun {
		select {
		case at := <-x.accepted: // it came with the end
			begin(at)
		default:
		}
	}
	switch {
	case !begun && x.err != nil:
		return x.err
	case !begun: // the reply is the proof that the request is kept; where, nobody heard
		w.Header().Set("Content-Type", ndjsonType)
		w.WriteHeader(http.StatusOK)
	}
	var line []byte
	if x.err != nil {
		line = reply.Frame(0, x.err)
	} else {
		line = wire.AppendReply(nil, 0, x.reply)
	}
	_, _ = w.Write(append(line, '\n'))
	return nil
}

// respond is POST /replies/{inbox}.
func (a *API) respond(w http.ResponseWriter, r *http.Request) error {
	to, err := a.cfg.Ask.Find(r.Context(), access.Of(r.Context()), param(r, "inbox"))
	if err != nil {
		return err
	}
	if err := noQuery(r); err != nil {
		return err
	}
	c := produceCall{topic: to.Topic, caller: access.Of(r.Context())}
	given, err := c.readHeaders(r.Header, replyHeaders)
	if err != nil {
		return err
	}
	answer := inbox.Reply{}
	if s, ok := given[statusHeader]; ok {
		n, wrong := strconv.Atoi(s)
		if wrong != nil || n < inbox.MinStatus || n > inbox.MaxStatus || len(s) != 3 {
			return invalid(statusHeader, "takes a status from %d to %d, not %q; leave it out where the request did not fail", inbox.MinStatus, inbox.MaxStatus, clip(s))
		}
		answer.Status = n
	}
	share := a.cfg.Held.Share()
	defer share.Close()
	rec, err := readOne(w, r, &c, share)
	if err != nil {
		return err
	}
	answer.ContentType, answer.Headers, answer.Value = rec.ContentType, rec.Headers, rec.Value
	if err := a.cfg.Ask.Reply(r.Context(), to, &answer); err != nil {
		return err
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/wire"
)

// fakeRequest is a request of a fake topic, by its correlation id.
type fakeRequest struct {
	inbox  string
	reply  *fakeReply
	gone   bool          // nobody waits any more
	closed chan struct{} // there is a reply
}

type fakeReply struct {
	status      string // of a failure
	contentType string
	headers     http.Header
	body        []byte
}

// serveRequests answers what is said of requests.
func (f *fake) serveRequests(mux *http.ServeMux) {
	mux.HandleFunc("POST /requests/{topic}", f.with(f.request))
	mux.HandleFunc("POST /replies/{inbox}", f.takeReply)
}

// request keeps a request and waits for its reply. A repeat waits for the same. Troubles:
// break (nothing done, the connection ends), lose (kept, the connection ends), busy (503),
// late (its deadline is in the past, and nobody waits), plain (what is kept is no request),
// forbidden (403), past (its clock is an hour behind from now on), future (ahead).
func (f *fake) request(w http.ResponseWriter, r *http.Request, t *fakeTopic) {
	what := f.takesLocked("request")
	switch what {
	case "break":
		panic(http.ErrAbortHandler)
	case "busy":
		refuse(w, fault.LeaderUnavailable, "no leader just now")
		return
	case "forbidden":
		refuse(w, fault.Forbidden, "the token has no right to request")
		return
	case "past":
		f.behind = time.Hour
	case "future":
		f.behind = -time.Hour
	}
	id := r.Header.Get("Tidewire-Correlation-Id")
	q := f.requests[id]
	if q == nil && !f.served(t) {
		refuse(w, fault.NoResponders, "no live member of a group serves topic "+t.name)
		return
	}
	timeout, err := time.ParseDuration(r.URL.Query().Get("timeout"))
	if err != nil {
		refuse(w, fault.Invalid, err.Error())
		return
	}
	body, _ := io.ReadAll(r.Body)
	if q == nil {
		q = &fakeRequest{inbox: "inbox-" + strconv.Itoa(len(f.requests)), closed: make(chan struct{})}
		f.requests[id] = q
		f.keepRequest(t, r, q, id, what, body, timeout)
	}
	if what == "lose" {
		panic(http.ErrAbortHandler)
	}
	if what == "late" || what == "plain" {
		q.gone = true
		refuse(w, fault.ReplyTimeout, "no reply came in time")
		return
	}
	f.mu.Unlock()
	defer f.mu.Lock()
	select {
	case <-q.closed:
		for name, values := range q.reply.headers {
			w.Header()[name] = values
		}
		w.Header().Set("Content-Type", q.reply.contentType)
		status := 200
		if q.reply.status != "" {
			w.Header().Set("Tidewire-Status", q.reply.status)
			status, _ = strconv.Atoi(q.reply.status)
		}
		w.WriteHeader(status)
		_, _ = w.Write(q.reply.body)
	case <-time.After(timeout):
		refuse(w, fault.ReplyTimeout, "no reply came in time")
	case <-r.Context().Done():
	}
}

func (f *fake) keepRequest(t *fakeTopic, r *http.Request, q *fakeRequest, id, what string, body []byte, timeout time.Duration) {
	headers := map[string]string{}
	for name, values := range r.Header {
		if short, ok := strings.CutPrefix(name, "Tidewire-H-"); ok {
			headers[strings.ToLower(short)] = values[0]
		}
	}
	if what == "late" {
		timeout = -time.Second
	}
	if what != "plain" {
		headers["Tidewire-Reply-To"], headers["Tidewire-Correlation-Id"] = q.inbox, id
		headers["Tidewire-Deadline"] = f.now().Add(timeout).UTC().Format(time.RFC3339Nano)
	}
	m := wire.Begin(nil).Str("topic", t.name).Int("partition", 0).Int("offset", int64(len(t.logs[0])))
	if key := r.URL.Query().Get("key"); key != "" {
		m.Str("key", key)
	}
	text, _ := json.Marshal(headers) // strings can be
	contentType := r.Header.Get("Content-Type")
	m.Str("content_type", contentType).Raw("headers", text)
	addValue(m, contentType, body)
	t.logs[0] = append(t.logs[0], string(m.Close()))
	close(f.changed)
	f.changed = make(chan struct{})
}

// served says that a group of a topic has a member.
func (f *fake) served(t *fakeTopic) bool {
	for _, g := range f.groups {
		if g.topic == t.name && g.member != "" {
			return true
		}
	}
	return false
}

// takeReply takes a reply. Troubles: gone (410), busy (503), forbidden (403), large (413).
func (f *fake) takeReply(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch f.takesLocked("reply") {
	case "gone":
		refuse(w, fault.RequesterGone, "the requester has left")
		return
	case "busy":
		refuse(w, fault.Throttled, "not so fast")
		return
	case "forbidden":
		refuse(w, fault.Forbidden, "the token has no right to reply")
		return
	case "large":
		refuse(w, fault.MessageTooLarge, "the reply is too large")
		return
	}
	for _, q := range f.requests {
		if q.inbox != r.PathValue("inbox") || q.reply != nil || q.gone {
			continue
		}
		q.reply = &fakeReply{status: r.Header.Get("Tidewire-Status"), contentType: r.Header.Get("Content-Type"), headers: http.Header{}, body: body}
		for name, values := range r.Header {
			if strings.HasPrefix(name, "Tidewire-H-") {
				q.reply.headers[name] = values
			}
		}
		close(q.closed)
		w.WriteHeader(http.StatusAccepted)
		return
	}
	refuse(w, fault.RequesterGone, fmt.Sprintf("inbox %s has its reply", r.PathValue("inbox")))
}

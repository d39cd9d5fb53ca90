package httpapi

import (
	"net/http"
	"strings"
	"time"

	"tidewire/gateway/access"
	"tidewire/gateway/deliver"
	"tidewire/gateway/guard"
	"tidewire/gateway/origin"
)

// admit asks who is calling before an action runs, which finds the answer in the
// request's context. What is not marked as open is closed.
func (a *API) admit(w http.ResponseWriter, r *http.Request, x actions, run action) error {
	if x.open {
		return run(w, r)
	}
	// A browser's page can send a token to a stream in the query alone, as a
	// ticket, and to a WebSocket in a subprotocol too.
	r, grant, err := a.cfg.Guard.Request(r, guard.Places{
		Ticket: x.endless && r.Method == http.MethodGet, Subprotocol: x.greets, Cookie: a.ownPage(r) == nil,
	})
	switch {
	case x.greets && access.ReasonOf(err) == access.NoToken:
		return run(w, r)
	case err == nil:
		r = r.WithContext(access.In(r.Context(), grant))
		err = run(w, r)
	}
	if err != nil {
		a.turnedAway(w, r, err)
	}
	return err
}

// may lets an action run for who has a right on the topic in its path.
func (a *API) may(right access.Right, run action) action {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := access.Of(r.Context()).May(right, param(r, "topic")); err != nil {
			return err
		}
		return run(w, r)
	}
}

// admin lets an action run for who may act on the whole of the cluster.
func (a *API) admin(run action) action {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := access.Of(r.Context()).Admin(); err != nil {
			return err
		}
		return run(w, r)
	}
}

// ownPage refuses what a page of a foreign origin sends, whatever its method.
func (a *API) ownPage(r *http.Request) error { return refused(a.cfg.Origins.Judge(r), r) }

// ownRead refuses a GET that does more than read to a page of a foreign origin, be it one
// that only embeds the address. Its browser would keep the answer from it, but a stream
// would take a connection's place, and messages of a group would be leased.
func (a *API) ownRead(r *http.Request) error { return refused(a.cfg.Origins.JudgeRead(r), r) }

func refused(v origin.Verdict, r *http.Request) error {
	switch v {
	case origin.Foreign, origin.Stranger:
		return origin.Refuse(v, r)
	}
	return nil
}

// checkAuthorization refuses a token where nobody looks at one: its sender must
// not believe that it counts. Probes are answered whatever they bring: one that
// shows the same token everywhere must not take the node for dead.
func (a *API) checkAuthorization(r *http.Request) error {
	if path := routePath(r.URL); path == "/healthz" || path == "/readyz" {
		return nil
	}
	if scheme, _, _ := strings.Cut(r.Header.Get("Authorization"), " "); a.cfg.Guard.Open() && strings.EqualFold(scheme, "Bearer") {
		return invalid("Authorization", "takes no token: this node has no auth_key_file; leave the header out")
	}
	return nil
}

// turnedAway is told of every refusal: those for who the caller is are counted,
// and say how to prove it.
func (a *API) turnedAway(w http.ResponseWriter, r *http.Request, err error) {
	if reason := access.ReasonOf(err); reason == access.NoToken {
		w.Header().Set("WWW-Authenticate", `Bearer realm="tidewire"`)
	} else if reason != "" {
		w.Header().Set("WWW-Authenticate", `Bearer realm="tidewire", error="invalid_token"`)
	}
	a.cfg.Guard.Refused(func() string { return transport(r) }, r.RemoteAddr, access.Of(r.Context()), err)
}

// transport of a request by what its address serves.
func transport(r *http.Request) string {
	switch p := routePattern(r); {
	case p == "/ws":
		return deliver.WebSocket
	case strings.HasSuffix(p, "/events"), accepts(r, eventStream):
		return deliver.SSE
	}
	return guard.HTTP
}

// whileGranted bounds a wait by the end of the caller's grant: what comes later
// is not for it any more.
func whileGranted(r *http.Request, wait time.Duration) time.Duration {
	if rest := grantedFor(access.Of(r.Context())); rest > 0 {
		return min(wait, rest)
	}
	return wait
}

// grantedFor is how long a grant lasts from now on; 0: without end.
func grantedFor(g *access.Grant) time.Duration {
	if g == nil || g.Expires.IsZero() {
		return 0
	}
	return max(1, time.Until(g.Expires))
}

package httpapi

import (
	"log/slog"
	"net/http"
	"time"

	"tidewire/gateway/origin"
	"tidewire/gateway/reply"
	"tidewire/internal/fault"
)

// NewStartingServer makes the server that answers while the API cannot yet: /healthz as
// the API does, /readyz with what the node waits for, and everything else with the first
// of that as a problem, which pages that may call the node can read. why gives at least
// one fault. Each answer ends its connection,
// so that its client comes to the API with the next one; an EventSource that comes back
// gets none.
func NewStartingServer(why func() []error, pages origin.Policy, log *slog.Logger) *http.Server {
	return newServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		res := newResponse(w, r)
		defer res.end()
		h := res.Header()
		h["X-Content-Type-Options"], h["Referrer-Policy"], h["Content-Security-Policy"] = noSniff, noReferrer, apiPolicies
		h.Set("Connection", "close") // HTTP/2 makes of it that no further request is taken
		done, err := checkOrigin(pages, res, r)
		if err == nil && !done {
			err = resuming(func(w http.ResponseWriter, r *http.Request) error { return beforehand(w, r, why) })(res, r)
		}
		if err != nil {
			refuseAhead(res, r, func() { reply.HTTP(res, err) })
		}
	}), log)
}

// beforehand answers a request before there is an API.
func beforehand(w http.ResponseWriter, r *http.Request, why func() []error) error {
	switch path := routePath(r.URL); {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
	case path == "/healthz":
		return sendAlive(w, r)
	case path == "/readyz":
		if err := noQuery(r); err != nil {
			return err
		}
		return notReady(why())
	}
	return fault.As(why()[0]).After(time.Second)
}

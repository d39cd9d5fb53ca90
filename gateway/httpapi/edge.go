package httpapi

import (
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"tidewire/gateway/reply"
	"tidewire/internal/fault"
)

// action answers a request or says why not; an error after the answer has
// begun ends the connection.
type action func(w http.ResponseWriter, r *http.Request) error

// edge is what every request passes on its way in: security headers, the
// origin check, the path as the router wants it, and a net under panics.
func (a *API) edge(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		res := newResponse(w, r)
		chi.RouteContext(r.Context()).RoutePath = routePath(r.URL)
		h := res.Header()
		h["X-Content-Type-Options"], h["Referrer-Policy"], h["Content-Security-Policy"] = noSniff, noReferrer, apiPolicies

		defer func() {
			abort := false
			if p := recover(); p != nil {
				abort = a.panicked(res, r, p)
			}
			a.metrics.count(r, res.status)
			res.end()
			if abort {
				panic(http.ErrAbortHandler) // net/http ends the connection without a word
			}
		}()
		done, err := checkOrigin(a.cfg.Origins, res, r)
		if err == nil {
			err = a.checkAuthorization(r)
		}
		switch {
		case err != nil:
			a.turnedAway(res, r, err)
			a.fail(res, r, err)
		case !done:
			next.ServeHTTP(res, r)
		}
	})
}

// apiPolicy is the content security policy of an answer that is no page.
const apiPolicy = "default-src 'none'; frame-ancestors 'none'"

// Headers of every answer as net/http holds them: the lists are never written to.
var (
	noSniff     = []string{"nosniff"}
	noReferrer  = []string{"no-referrer"}
	apiPolicies = []string{apiPolicy}
	typeJSON    = []string{"application/json"}
	noStore     = []string{"no-store"}
)

// routePath is the path as the router matches it: still escaped, so that an
// escaped slash stays inside its parameter; escaped in one way only, so that
// %74opics is topics; and without a trailing slash.
func routePath(u *url.URL) string {
	path := u.EscapedPath()
	if u.RawPath != "" {
		parts := strings.Split(path, "/")
		for i, p := range parts {
			if plain, err := url.PathUnescape(p); err == nil {
				parts[i] = url.PathEscape(plain)
			}
		}
		path = strings.Join(parts, "/")
	}
	if len(path) > 1 {
		path = strings.TrimSuffix(path, "/")
	}
	if path == "" {
		return "/"
	}
	return path
}

// param is a parameter of the path, decoded.
func param(r *http.Request, name string) string {
	escaped := chi.URLParam(r, name)
	if plain, err := url.PathUnescape(escaped); err == nil {
		return plain
	}
	return escaped
}

// answer runs an action and answers its error.
func (a *API) answer(run action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := run(w, r); err != nil {
			a.fail(w.(*response), r, err)
		}
	}
}

// fail is where an error leaves as a problem. One that nobody expected goes to
// the log under an id that the client gets too.
func (a *API) fail(w *response, r *http.Request, err error) {
	f := fault.As(err)
	if f.Kind == fault.Internal {
		id := uuid.NewString()
		a.log.Error("request failed", slog.String("request", id), slog.String("method", r.Method),
			slog.String("route", routePattern(r)), slog.Any("err", err))
		err = f.With("request", id)
	}
	if w.status != 0 {
		// Half an answer must not look like a whole one.
		panic(http.ErrAbortHandler)
	}
	w.Header().Del("Content-Length")
	refuseAhead(w, r, func() { reply.HTTP(w, err) })
}

// panicked answers a request whose action broke an invariant; the process
// lives on. abort: half an answer is out, so its connection must end.
func (a *API) panicked(w *response, r *http.Request, p any) (abort bool) {
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		return true
	}
	id := uuid.NewString()
	a.log.Error("panic in a request", slog.String("request", id), slog.String("method", r.Method),
		slog.String("route", routePattern(r)), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
	if w.status != 0 {
		return !w.hijacked
	}
	reply.HTTP(w, fault.New(fault.Internal, "panic: %v", p).With("request", id))
	return false
}

func routePattern(r *http.Request) string {
	if c := chi.RouteContext(r.Context()); c != nil {
		if p := c.RoutePattern(); p != "" {
			return p
		}
	}
	return "none"
}

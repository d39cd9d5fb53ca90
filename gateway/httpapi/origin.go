package httpapi

import (
	"net/http"
	"net/url"
	"strings"

	"tidewire/internal/fault"
)

// origins says which web pages may call this node beside its own.
type origins struct{ allowed map[string]bool }

func newOrigins(allowed []string) origins {
	o := origins{allowed: make(map[string]bool, len(allowed))}
	for _, origin := range allowed {
		o.allowed[strings.ToLower(strings.TrimSuffix(origin, "/"))] = true
	}
	return o
}

// exposed are the headers of answers that a page of an allowed origin may read.
const exposed = "Allow, Location, Retry-After"

// check looks where a browser's request comes from. Requests without Origin
// come from no other page; a page of the node itself is always welcome; one of
// an allowed origin gets the headers of CORS; anything else may not change
// state, and what it reads its browser keeps from it. done: the answer is sent.
func (o origins) check(w http.ResponseWriter, r *http.Request) (done bool, err error) {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false, nil
	}
	h := w.Header()
	h.Add("Vary", "Origin")
	if sameOrigin(origin, r.Host) {
		return false, nil
	}
	preflight := r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
	if !o.allowed[strings.ToLower(origin)] {
		if preflight || !safe(r.Method) {
			return false, fault.New(fault.Forbidden, "pages of origin %q may not do this; name the origin in allowed_origins", clip(origin)).With("origin", clip(origin))
		}
		return false, nil
	}
	h.Set("Access-Control-Allow-Origin", origin)
	if !preflight {
		h.Set("Access-Control-Expose-Headers", exposed)
		return false, nil
	}
	h.Add("Vary", "Access-Control-Request-Method")
	h.Add("Vary", "Access-Control-Request-Headers")
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PATCH, DELETE")
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
		// Record headers have any name (Tidewire-H-…), so there is no list.
		h.Set("Access-Control-Allow-Headers", asked)
	}
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true, nil
}

func sameOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	// The scheme is not compared: a proxy in front may end TLS.
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, host)
}

func safe(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

func clip(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:64], "") + "…"
	}
	return s
}

package httpapi

import (
	"net/http"
	"strings"

	"tidewire/gateway/origin"
)

// exposed are the headers of answers that a page of an allowed origin may read.
const exposed = "Allow, Location, Retry-After, Tidewire-Correlation-Id, Tidewire-Status"

const exposeHeader = "Access-Control-Expose-Headers"

// checkOrigin looks where a browser's request comes from. Requests without
// Origin come from no other page; a page of the node itself is always welcome;
// one of an allowed origin gets the headers of CORS. Another page may not change
// state, and what it reads its browser keeps from it; one under a name that the
// node is not known by its browser takes for the node's own, so it gets nothing.
// done: the answer is sent.
func checkOrigin(pages origin.Policy, w http.ResponseWriter, r *http.Request) (done bool, err error) {
	verdict := pages.Judge(r)
	if verdict == origin.None {
		return false, nil
	}
	h := w.Header()
	h.Add("Vary", "Origin")
	preflight := r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
	switch {
	case verdict == origin.Own:
		return false, nil
	case verdict == origin.Stranger, verdict == origin.Foreign && (preflight || !safe(r.Method)):
		return false, origin.Refuse(verdict, r)
	case verdict == origin.Foreign:
		return false, nil
	}
	h.Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
	h.Set("Access-Control-Allow-Credentials", "true") // a token may be in a cookie
	if !preflight {
		h.Set(exposeHeader, exposed)
		return false, nil
	}
	h.Add("Vary", "Access-Control-Request-Method")
	h.Add("Vary", "Access-Control-Request-Headers")
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE")
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
		// Record headers have any name (Tidewire-H-…), so there is no list.
		h.Set("Access-Control-Allow-Headers", asked)
	}
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true, nil
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

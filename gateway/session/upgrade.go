package session

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"

	"tidewire/gateway/origin"
	"tidewire/internal/fault"
)

// Subprotocol is what this server speaks.
const Subprotocol = "tidewire.v1.json"

// checkUpgrade says why a request cannot become a WebSocket here. The library
// would say it too, but in its own words.
func (m *Manager) checkUpgrade(w http.ResponseWriter, r *http.Request) error {
	switch {
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", http.MethodGet)
		return fault.New(fault.MethodNotAllowed, "a WebSocket begins with GET")
	case !hasToken(r.Header, "Upgrade", "websocket") || !hasToken(r.Header, "Connection", "upgrade") || r.ProtoMajor != 1 || r.ProtoMinor < 1:
		w.Header().Set("Upgrade", "websocket")
		return badHeader("Upgrade", "this address speaks WebSocket alone: send the upgrade over HTTP/1.1, or read with GET /topics/{topic}/events")
	case r.Header.Get("Sec-WebSocket-Version") != "13":
		w.Header().Set("Sec-WebSocket-Version", "13")
		return badHeader("Sec-WebSocket-Version", "takes 13")
	}
	keys := r.Header.Values("Sec-WebSocket-Key")
	if len(keys) != 1 {
		return badHeader("Sec-WebSocket-Key", "is needed, once")
	}
	if key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(keys[0])); err != nil || len(key) != 16 {
		return badHeader("Sec-WebSocket-Key", "takes 16 bytes in base64")
	}
	if err := m.checkOrigin(r); err != nil {
		return err
	}
	return checkSubprotocols(r.Header, m.cfg.Guard.Open())
}

func badHeader(name, what string) error {
	return fault.New(fault.Invalid, "header %q: %s", name, what).With("field", name)
}

// checkOrigin lets pages of this node and of the allowed origins connect, and
// whatever is no page and so names no origin. Cookies would go with a page's
// connection from anywhere, so it is no matter of taste.
func (m *Manager) checkOrigin(r *http.Request) error {
	switch v := m.cfg.Origins.Judge(r); v {
	case origin.Foreign, origin.Stranger:
		return origin.Refuse(v, r)
	}
	return nil
}

func checkSubprotocols(h http.Header, open bool) error {
	offered := tokens(h, "Sec-WebSocket-Protocol")
	if len(offered) == 0 {
		return nil
	}
	if open && slices.ContainsFunc(offered, func(p string) bool { return strings.HasPrefix(strings.ToLower(p), "bearer.") }) {
		return badHeader("Sec-WebSocket-Protocol", "this node takes no tokens: it has no auth_key_file; leave bearer.… out")
	}
	if !slices.ContainsFunc(offered, func(p string) bool { return strings.EqualFold(p, Subprotocol) }) {
		return badHeader("Sec-WebSocket-Protocol", "this server speaks "+Subprotocol+"; offer it, or nothing")
	}
	return nil
}

func hasToken(h http.Header, name, token string) bool {
	return slices.ContainsFunc(tokens(h, name), func(t string) bool { return strings.EqualFold(t, token) })
}

func tokens(h http.Header, name string) (out []string) {
	for _, v := range h.Values(name) {
		for t := range strings.SplitSeq(v, ",") {
			if t = strings.TrimSpace(t); t != "" {
				out = append(out, t)
			}
		}
	}
	return out
}

func clip(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:64], "") + "…"
	}
	return s
}

package guard

import (
	"net/http"
	"net/url"
	"strings"

	"tidewire/gateway/access"
	"tidewire/internal/fault"
)

const (
	// Cookie is the name of the cookie that may hold a token.
	Cookie = "tidewire_token"
	// subprotocol is what stands before a token among the subprotocols of a
	// WebSocket, the one header that a browser's page can fill.
	subprotocol = "bearer."
	// ticketParameter of the query holds a ticket.
	ticketParameter = "ticket"
)

// Places are where a request may say who its caller is, beside the header
// Authorization.
type Places struct {
	Ticket      bool // in the query: for streams, whose browsers can send no header
	Subprotocol bool // of a WebSocket
	// Cookie: a browser sends cookies for whatever page asks, so only where the
	// page is known to be of an allowed origin.
	Cookie bool
}

// Request says who is calling. The request that comes back has no ticket in its
// query any more: nobody behind here can log it or trip over it.
func (g *Guard) Request(r *http.Request, from Places) (*http.Request, *access.Grant, error) {
	if g.Open() {
		return r, g.everyone, nil
	}
	token, given, err := bearer(r.Header)
	if err != nil {
		return r, nil, err
	}
	if from.Subprotocol {
		if t, ok := inSubprotocols(r.Header); ok && given {
			return r, nil, twice()
		} else if ok {
			token, given = t, true
		}
	}
	if from.Ticket {
		text, rest, ok, err := inQuery(r.URL)
		switch {
		case err != nil:
			return r, nil, err
		case ok && given:
			return r, nil, twice()
		case ok:
			grant, err := g.Redeem(text)
			return withQuery(r, rest), grant, err
		}
	}
	if !given && from.Cookie {
		if token, given, err = inCookies(r); err != nil {
			return r, nil, err
		}
	}
	switch {
	case !given && !from.Ticket && r.URL.Query().Has(ticketParameter):
		return r, nil, access.Refuse(access.NoToken, "a ticket is for streams of events and WebSockets alone; send a token as \"Authorization: Bearer …\"")
	case !given:
		return r, nil, access.Missing()
	}
	grant, err := g.Token(token)
	return r, grant, err
}

func twice() error {
	return fault.New(fault.Invalid, "the call says twice who is calling: give one of the header Authorization, a subprotocol bearer.… or a ticket").With("field", "Authorization")
}

// bearer is the token of the header Authorization. Another scheme is for
// somebody else, a proxy perhaps.
func bearer(h http.Header) (token string, given bool, err error) {
	values := h.Values("Authorization")
	if len(values) > 1 {
		return "", false, fault.New(fault.Invalid, "header \"Authorization\" comes %d times; give it once", len(values)).With("field", "Authorization")
	}
	if len(values) == 0 {
		return "", false, nil
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	return strings.TrimSpace(token), strings.EqualFold(scheme, "Bearer"), nil
}

func inSubprotocols(h http.Header) (token string, given bool) {
	for _, v := range h.Values("Sec-WebSocket-Protocol") {
		for t := range strings.SplitSeq(v, ",") {
			if t = strings.TrimSpace(t); len(t) >= len(subprotocol) && strings.EqualFold(t[:len(subprotocol)], subprotocol) {
				return t[len(subprotocol):], true
			}
		}
	}
	return "", false
}

// inQuery takes the ticket out of a query. One that cannot be read is left to
// whoever reads the rest of it.
func inQuery(u *url.URL) (text, rest string, given bool, err error) {
	if !strings.Contains(u.RawQuery, ticketParameter) {
		return "", "", false, nil
	}
	q, bad := url.ParseQuery(u.RawQuery)
	if bad != nil || !q.Has(ticketParameter) {
		return "", "", false, nil
	}
	if n := len(q[ticketParameter]); n > 1 {
		return "", "", false, fault.New(fault.Invalid, "parameter \"ticket\" comes %d times; give it once", n).With("field", ticketParameter)
	}
	text = q.Get(ticketParameter)
	q.Del(ticketParameter)
	return text, q.Encode(), true, nil
}

func withQuery(r *http.Request, query string) *http.Request {
	c := *r
	u := *r.URL
	u.RawQuery = query
	c.URL, c.RequestURI = &u, u.RequestURI()
	return &c
}

func inCookies(r *http.Request) (token string, given bool, err error) {
	for _, c := range r.CookiesNamed(Cookie) {
		if given && c.Value != token {
			return "", false, access.Refuse(access.Malformed, "the cookie %q comes twice, with different tokens", Cookie)
		}
		token, given = c.Value, true
	}
	return token, given, nil
}

package origin

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"tidewire/internal/fault"
)

// Verdict on a request.
type Verdict uint8

const (
	None     Verdict = iota // it names no origin: it comes from no page
	Own                     // of a page of this node
	Allowed                 // of a page in allowed_origins
	Foreign                 // of a page of another host
	Stranger                // of a page under a name that this node is not known by
)

// Policy says which pages may call the node.
type Policy struct {
	allowed map[string]bool // origins, in lower case
	known   map[string]bool // names of this node, in lower case, without port
}

// New makes the policy of a node: origins as https://app.example.com that are
// allowed besides its own, and its address as clients dial it, which may be
// empty.
func New(allowed []string, advertised string) Policy {
	p := Policy{allowed: map[string]bool{}, known: map[string]bool{"localhost": true}}
	if name := hostname(advertised); name != "" {
		p.known[name] = true
	}
	for _, o := range allowed {
		o = strings.ToLower(strings.TrimSuffix(o, "/"))
		p.allowed[o] = true
		if u, err := url.Parse(o); err == nil && u.Host != "" {
			p.known[hostname(u.Host)] = true
		}
	}
	return p
}

// Judge says where a request comes from.
func (p Policy) Judge(r *http.Request) Verdict { return p.judge(r, r.Header.Get("Origin")) }

// JudgeRead says where a GET comes from that does more than read. A page that embeds its
// address, or leads to it, sends no Origin with it: what tells then is what the browser says
// of the page (Sec-Fetch-Site), and one that says nothing at all may name it (Referer).
func (p Policy) JudgeRead(r *http.Request) Verdict {
	switch site := r.Header.Get("Sec-Fetch-Site"); {
	case r.Header.Get("Origin") != "":
	case site == "cross-site" || site == "same-site":
		return Foreign
	case site == "":
		if u, err := url.Parse(r.Header.Get("Referer")); err == nil && u.Host != "" {
			if v := p.judge(r, u.Scheme+"://"+u.Host); v == Foreign {
				return v
			}
		}
	}
	return p.Judge(r)
}

func (p Policy) judge(r *http.Request, origin string) Verdict {
	if origin == "" {
		return None
	}
	// The scheme is not compared: a proxy in front may end TLS.
	u, err := url.Parse(origin)
	same := err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
	switch {
	case same && p.knows(hostname(r.Host)):
		return Own
	case p.allowed[strings.ToLower(origin)]:
		return Allowed
	case same:
		return Stranger
	}
	return Foreign
}

// knows reports whether the node is known by a host: an address, which nobody
// can let point elsewhere, or a name that its settings give.
func (p Policy) knows(host string) bool {
	if p.known[host] {
		return true
	}
	_, err := netip.ParseAddr(host)
	return err == nil
}

// Refuse is the error for a page that may not do something.
func Refuse(v Verdict, r *http.Request) error {
	origin := clip(r.Header.Get("Origin"))
	if origin == "" {
		return fault.New(fault.Forbidden, "pages of other hosts may not embed this address or lead to it; a page whose origin allowed_origins names may fetch it").With("origin", "null")
	}
	if v == Stranger {
		return fault.New(fault.Forbidden, "this node is not known as %q, so its page of origin %q may not call it: name the origin in allowed_origins, or the host in advertise_http",
			clip(hostname(r.Host)), origin).With("origin", origin)
	}
	return fault.New(fault.Forbidden, "pages of origin %q may not call this node; name the origin in allowed_origins", origin).With("origin", origin)
}

// hostname is the host of an address with or without a port, in lower case and
// without brackets.
func hostname(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(address, "["), "]")
	}
	return strings.ToLower(host)
}

func clip(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:64], "") + "…"
	}
	return s
}

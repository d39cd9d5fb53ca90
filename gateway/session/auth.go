package session

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"

	"tidewire/gateway/access"
	"tidewire/gateway/deliver"
	"tidewire/gateway/quota"
	"tidewire/gateway/reply"
	"tidewire/gateway/topology"
	"tidewire/internal/fault"
	"tidewire/internal/wire"
)

// helloTime is how long a connection may be open before it says who it is.
const helloTime = 10 * time.Second

// callerOf is what the request's caller may do; nil: it has not said yet who it
// is, and has to in its hello.
func (m *Manager) callerOf(r *http.Request) *access.Grant {
	if m.cfg.Guard.Open() {
		return m.cfg.Guard.Everyone()
	}
	return access.Of(r.Context())
}

// begin welcomes a caller that is known and gives the others time to say hello.
// It runs on the reader's goroutine, as everything here that looks at the grant.
func (s *session) begin(caller *access.Grant, start *deliver.Start, reference string) {
	s.grant, s.reference = caller, reference
	s.client = quota.Client(caller, s.address)
	principal, until := "", time.Now().Add(helloTime)
	if caller != nil {
		principal, until = caller.Principal, caller.Expires
	}
	s.known.Store(caller != nil)
	s.conn = s.m.cfg.Connections.Add(s, s.id, deliver.WebSocket, s.address, principal, until)
	if caller == nil {
		return
	}
	s.push(s.welcome(0))
	if start != nil {
		s.subscribed(0, *start, unbounded)
	}
}

// Reading is for the set of connections.
func (s *session) Reading() (subscriptions int, behind int64) {
	s.mu.Lock()
	members := len(s.members)
	reads := make([]*deliver.Subscription, 0, len(s.subs))
	for _, x := range s.subs {
		reads = append(reads, x.sub)
	}
	s.mu.Unlock()
	for _, sub := range reads {
		behind += sub.Behind()
	}
	return len(reads) + members, behind
}

// Expire is for the set of connections: the token's end has come, or that of
// the time for a hello.
func (s *session) Expire() {
	if s.known.Load() {
		s.shut(reply.CloseExpired, "the token has expired; come back with a fresh one")
		return
	}
	s.m.cfg.Guard.Refused(overWebSocket, s.address, nil, access.Missing())
	s.shut(reply.CloseUnauthorized, "no hello with a token within "+helloTime.String())
}

// Dismiss is for the set of connections.
func (s *session) Dismiss() { s.shut(reply.CloseGoingAway, "closed by an administrator") }

// greeted says why an op is not taken yet: who has not said who it is says that
// first.
func (s *session) greeted(op string) error {
	if s.grant != nil || op == "hello" || op == "auth" {
		return nil
	}
	return access.Refuse(access.NoToken, "say hello with a token first: {\"op\":\"hello\",\"token\":…}")
}

func overWebSocket() string { return deliver.WebSocket }

// refused counts an answer that refuses a caller for who it is.
func (s *session) refused(err error) error {
	s.m.cfg.Guard.Refused(overWebSocket, s.address, s.grant, err)
	return err
}

func (s *session) hello(ctx context.Context, f *wire.Frame) error {
	if f.Token != "" {
		first := s.grant == nil
		if err := s.identify(f.Token); err != nil {
			return s.unwelcome(f.ID, err)
		}
		if first {
			s.push(s.welcome(f.ID))
			return s.resume(ctx)
		}
	}
	if s.grant == nil {
		return access.Refuse(access.NoToken, "hello needs a token here")
	}
	s.push(s.welcome(f.ID))
	return nil
}

// auth puts a fresh token in the place of the one before, or says who this is.
func (s *session) auth(ctx context.Context, f *wire.Frame) error {
	if s.m.cfg.Guard.Open() {
		return fault.New(fault.Invalid, "op %q: this node takes no tokens: it has no auth_key_file", f.Op).With("field", "op")
	}
	first := s.grant == nil
	if err := s.identify(f.Token); err != nil {
		return s.unwelcome(f.ID, err)
	}
	s.push(wire.Open(nil, "authorized").ID(f.ID).Time("expires", s.grant.Expires.UnixMilli()).Close())
	if !first {
		return nil
	}
	s.push(s.welcome(0))
	return s.resume(ctx)
}

// unwelcome answers a token that is refused. It ends a connection that has no
// other; one that has lives on until that ends.
func (s *session) unwelcome(id int64, err error) error {
	if s.grant != nil || s.m.cfg.Guard.Open() {
		return err
	}
	s.push(reply.Frame(id, s.refused(err)))
	switch reason := access.ReasonOf(err); reason {
	case access.TooLate:
		s.shut(reply.CloseExpired, "the token has expired; come back with a fresh one")
	case "":
		s.shut(reply.CloseTryLater, "the token cannot be judged yet")
	default:
		s.shut(reply.CloseUnauthorized, "the token is not valid")
	}
	return nil
}

// identify takes a token.
func (s *session) identify(token string) error {
	g, err := s.m.cfg.Guard.Token(token)
	switch {
	case err != nil:
		return err
	case s.grant != nil && s.grant.Principal != g.Principal:
		return fault.New(fault.Forbidden, "the token is another principal's (claim \"sub\"); open a connection of its own for it")
	}
	s.grant, s.client = g, quota.Client(g, s.address)
	s.known.Store(true)
	s.conn.Identify(g.Principal, g.Expires)
	s.recheck()
	return nil
}

// recheck ends the subscriptions that the new token gives no right to.
func (s *session) recheck() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range slices.Clone(s.subs) { // dropping changes it
		if err := s.grant.May(access.Subscribe, x.sub.Topic().Name); err != nil {
			s.pushLocked(reply.FrameFor(0, x.name, s.refused(err)))
			s.dropLocked(x)
		}
	}
	for _, x := range slices.Clone(s.members) {
		if err := s.grant.May(access.Group, x.Topic.Name); err != nil && s.forgetLocked(x) {
			s.pushLocked(reply.FrameFor(0, x.name, s.refused(err)))
		}
	}
	s.schedule()
}

// resume begins the subscription that the address of the connection named, now
// that it is known whose it is.
func (s *session) resume(ctx context.Context) error {
	if s.reference == "" {
		return nil
	}
	start, err := s.m.reference(ctx, s.grant, s.reference)
	s.reference = ""
	if err != nil {
		s.push(reply.Frame(0, s.refused(err)))
		return nil
	}
	s.subscribed(0, *start, unbounded)
	return nil
}

// reference finds where the subscription begins that an address names.
func (m *Manager) reference(ctx context.Context, caller *access.Grant, text string) (*deliver.Start, error) {
	ref, err := deliver.ParseReference(text)
	if err != nil {
		return nil, err
	}
	if err := caller.May(access.Subscribe, ref.Topic); err != nil {
		return nil, err
	}
	t, err := topology.Topic(ctx, m.cfg.Topology, ref.Topic)
	if err != nil {
		return nil, err
	}
	start, err := m.cfg.Hub.Resolve(ctx, ref.Request(t))
	return &start, err
}

// start is what the address of an upgrade asks for: the subscription's beginning
// where it is known who asks, else its text, to be looked at once it is.
func (m *Manager) start(r *http.Request, caller *access.Grant) (start *deliver.Start, text string, err error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, "", fault.New(fault.Invalid, "the query of the address: %w", err)
	}
	for name, values := range q {
		switch {
		case name != "subscription":
			return nil, "", fault.Unknown("parameter", name, []string{"subscription"})
		case len(values) > 1:
			return nil, "", fault.New(fault.Invalid, "parameter %q comes twice", name).With("field", name)
		}
	}
	if text = q.Get("subscription"); !q.Has("subscription") || (caller == nil && text != "") {
		return nil, text, nil
	}
	start, err = m.reference(r.Context(), caller, text)
	return start, "", err
}

package session

import (
	"context"
	"time"

	"tidewire/gateway/access"
	"tidewire/gateway/ask"
	"tidewire/gateway/reply"
	"tidewire/internal/fault"
	"tidewire/internal/inbox"
	"tidewire/internal/wire"
)

const (
	// MaxInFlightRequests bounds the requests of one connection that have no reply yet. Its
	// frames are read on: a reply of its own may be among them.
	MaxInFlightRequests = 1024
	// maxReplyBytes bounds what waits for a client that does not take its replies; one more
	// is not for it any more.
	maxReplyBytes = 4 << 20
	// acceptedWait is how long it waits for another line to go with that a request is kept.
	acceptedWait = 2 * time.Millisecond
)

// Asker is request-reply; *ask.Ask is.
type Asker interface {
	Begin(ctx context.Context, q ask.Request, client ask.Client) (*ask.Call, error)
	Find(ctx context.Context, caller *access.Grant, to string) (ask.Dest, error)
	Here(d ask.Dest) bool
	Reply(ctx context.Context, d ask.Dest, r *inbox.Reply) error
}

// question is a request of a connection that waits for its reply.
type question struct {
	s    *session
	id   int64
	call *ask.Call // nil: it has yet to begin, or has ended already
}

func (s *session) request(ctx context.Context, f *wire.Frame) error {
	if err := s.refusesNew(); err != nil {
		return err
	}
	p := &f.Publication
	if err := s.grant.May(access.Request, p.Topic); err != nil {
		return err
	}
	if s.m.cfg.Ask == nil {
		return fault.New(fault.NoResponders, "this node does not serve requests")
	}
	if err := s.m.cfg.Quota.Wait(ctx, s.client); err != nil {
		return err
	}
	q := &question{s: s, id: f.ID}
	s.mu.Lock()
	if len(s.questions) >= MaxInFlightRequests {
		s.mu.Unlock()
		return fault.New(fault.Limit, "a connection has at most %d requests without a reply; wait for some, or open another", MaxInFlightRequests).With("limit", "max_in_flight_requests")
	}
	if s.questions == nil {
		s.questions = map[*question]struct{}{}
	}
	s.questions[q] = struct{}{}
	s.mu.Unlock()
	s.conn.In.Add(1)
	call, err := s.m.cfg.Ask.Begin(ctx, ask.Request{
		Topic: p.Topic, Record: p.Record, Principal: s.grant.Principal, Correlation: f.Request.Correlation, Timeout: f.Request.Timeout,
	}, q)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		delete(s.questions, q)
		return err
	}
	q.call = call
	return nil
}

// Accepted is of ask.Client. A reply is often there a moment later, and one frame costs half
// of what two do.
func (q *question) Accepted(at ask.Accepted) {
	s := q.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	s.out = appendAccepted(s.separatedLocked(), q.id, at)
	switch {
	case s.accepting:
	case s.acceptTimer == nil:
		s.accepting, s.acceptTimer = true, time.AfterFunc(acceptedWait, s.accepted)
	default:
		s.accepting = true
		s.acceptTimer.Reset(acceptedWait)
	}
}

// accepted sends what has waited for a reply to go with.
func (s *session) accepted() {
	s.mu.Lock()
	s.accepting = false
	waits := len(s.out) > 0
	s.mu.Unlock()
	if waits {
		s.schedule()
	}
}

func appendAccepted(b []byte, id int64, at ask.Accepted) []byte {
	return wire.Open(b, "accepted").ID(id).Int("partition", int64(at.Partition)).Int("offset", int64(at.Offset)).
		Str("correlation", at.Correlation).Bool("duplicate", at.Duplicate).Close()
}

// Answered is of ask.Client.
func (q *question) Answered(r *inbox.Reply, err error) {
	s := q.s
	s.mu.Lock()
	delete(s.questions, q)
	if r != nil && len(s.out) > 0 && len(s.out)+r.Bytes() > maxReplyBytes {
		err = fault.New(fault.Throttled, "the reply came while %d bytes waited for this connection to take them, and is not for it any more: read faster, or ask for less at once", len(s.out))
	}
	switch {
	case s.over:
	case err != nil:
		s.pushLocked(reply.Frame(q.id, err))
	default:
		s.out = wire.AppendReply(s.separatedLocked(), q.id, r)
	}
	if s.accepting && s.acceptTimer.Stop() {
		s.accepting = false
	}
	s.mu.Unlock()
	s.schedule()
}

// forsake gives up what the connection has asked: there is nobody to hear of it.
func (s *session) forsake() {
	s.mu.Lock()
	left := s.questions
	s.questions = nil
	if s.acceptTimer != nil {
		s.acceptTimer.Stop()
	}
	s.mu.Unlock()
	for q := range left {
		if q.call != nil {
			q.call.Leave()
		}
	}
}

// reply brings a reply to its requester. One that has to go to another node goes on while
// the connection's frames are read.
func (s *session) reply(ctx context.Context, f *wire.Frame) error {
	if s.m.cfg.Ask == nil {
		return fault.New(fault.RequesterGone, "this node does not serve requests")
	}
	to, err := s.m.cfg.Ask.Find(ctx, s.grant, f.Reply.To)
	if err != nil {
		return err
	}
	rec := &f.Publication.Record
	r := inbox.Reply{Status: f.Reply.Status, ContentType: rec.ContentType, Headers: rec.Headers, Value: rec.Value}
	if s.m.cfg.Ask.Here(to) {
		if err := s.m.cfg.Ask.Reply(ctx, to, &r); err != nil {
			return err
		}
		s.push(appendReplied(nil, f.ID))
		return nil
	}
	own, id := r.Clone(), f.ID
	bytes := own.Bytes() + flightBytes
	s.mu.Lock()
	s.inFlight++
	s.flying += bytes
	s.mu.Unlock()
	s.m.open.Go(func() {
		err := s.m.cfg.Ask.Reply((*life)(s), to, own)
		line := appendReplied(nil, id)
		if err != nil {
			line = reply.Frame(id, err)
		}
		s.mu.Lock()
		s.inFlight--
		s.flying -= bytes
		s.pushLocked(line)
		s.relief.Signal()
		s.mu.Unlock()
		s.schedule()
	})
	return nil
}

func appendReplied(b []byte, id int64) []byte { return wire.Open(b, "replied").ID(id).Close() }

package rpc

import (
	"context"
	"io"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"tidewire/internal/fault"
)

// door is where one port serves both: what begins with preface carries a stream, the
// rest is gRPC's. Until it has said which, and what it opens, a connection has as long
// as gRPC gives it to begin.
type door struct {
	credentials.TransportCredentials // none
	s                                *Server
}

func newDoor(s *Server) *door { return &door{insecure.NewCredentials(), s} }

func (d *door) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	first := make([]byte, len(preface))
	if _, err := io.ReadFull(conn, first); err != nil {
		return nil, nil, err
	}
	if string(first[:len(prefaceMark)]) == prefaceMark {
		d.s.meet(conn, first[len(prefaceMark)])
		return nil, nil, credentials.ErrConnDispatched
	}
	return d.TransportCredentials.ServerHandshake(&begun{&weighed{conn, d.s.cfg.Metrics}, first})
}

// Clone keeps the door: gRPC uses a copy.
func (d *door) Clone() credentials.TransportCredentials { return d }

// begun is a connection of which the first bytes were read.
type begun struct {
	net.Conn
	first []byte
}

func (b *begun) Read(p []byte) (int, error) {
	if len(b.first) == 0 {
		return b.Conn.Read(p)
	}
	n := copy(p, b.first)
	b.first = b.first[n:]
	return n, nil
}

// meet opens a stream, and leaves it to a goroutine of its own.
func (s *Server) meet(conn net.Conn, version byte) {
	f := newFramed(context.Background(), conn, s.cfg.Metrics)
	method, serve, err := s.admitStream(f, version)
	if err != nil {
		end := &ending{problem: err, refused: true}
		f.end(end)
		f.close()
		s.cfg.Metrics.ended(method, end)
		return
	}
	var e encoder
	e.begin()
	_ = f.send(frameOpen, &e) // a broken connection ends the stream's receiver
	if !s.lines.add(f) {
		f.close()
		return
	}
	s.carrying.Go(func() { s.carry(f, method, serve) })
}

// carry serves a stream until it ends.
func (s *Server) carry(f *framed, method string, serve func(*framed) *ending) {
	defer s.lines.remove(f)
	defer f.close()
	over := s.cfg.Metrics.carried(method)
	end := serve(f)
	f.end(end)
	over(end)
}

// noMethod is of a stream that was not opened: a stranger names no metric.
const noMethod = "unknown"

// admitStream reads what is opened, and looks at it before anything of the stream is read.
func (s *Server) admitStream(f *framed, version byte) (method string, serve func(*framed) *ending, err error) {
	method = noMethod
	if version != prefaceVersion {
		return method, nil, fault.New(fault.LeaderUnavailable, "the caller speaks version %d of the frames between nodes, this node %d: they run versions that do not go together", version, prefaceVersion)
	}
	var o opening
	kind, b, _, err := f.frame()
	switch {
	case err != nil:
		return method, nil, fault.New(fault.LeaderUnavailable, "what a stream opens with cannot be read: %w", err)
	case kind != frameOpen || o.decode(b) != nil:
		return method, nil, fault.New(fault.LeaderUnavailable, "a stream begins with what it opens")
	}
	i, refusal := parseIdentity(o.caller)
	if refusal == nil {
		refusal = i.meant(s.cfg.Self().Node, s.cfg.Cluster())
	}
	if refusal != nil {
		return method, nil, refusal
	}
	broker := s.broker.Load()
	switch o.method {
	case methodAppend:
		method, serve = o.method, func(f *framed) *ending { return s.serveAppend(f, *broker) }
	case methodFollow:
		f.most = maxControlBytes
		method, serve = o.method, func(f *framed) *ending { return s.serveFollow(f, *broker) }
	default:
		return method, nil, fault.New(fault.LeaderUnavailable, "this node has no stream %.40q", o.method)
	}
	if broker == nil {
		return method, nil, fault.New(fault.LeaderUnavailable, "this node does not serve as a broker, or not yet")
	}
	return method, serve, f.conn.SetDeadline(time.Time{})
}

// endLimit is how long the end of a stream may wait for room, and then for the other
// end to have read it.
const endLimit = 250 * time.Millisecond

// end says why a stream ends, and takes nothing more in. It waits until the other end
// has closed the connection: who closes one of which not all was read takes back what it
// said last.
func (f *framed) end(m *ending) {
	if f.ctx.Err() != nil || f.conn.SetDeadline(time.Now().Add(endLimit)) != nil {
		return // nobody hears it
	}
	var e encoder
	m.encode(&e)
	f.over.Store(true)
	if f.send(frameEnd, &e) == nil {
		_, _ = io.Copy(io.Discard, f.bare)
	}
}

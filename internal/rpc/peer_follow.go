package rpc

import (
	"context"
	"errors"

	"tidewire/internal/fault"
)

// Following is the follower's end of a replication stream. Recv may be called beside the
// others, which are called by one goroutine at a time. Any error ends the stream; Close
// does too.
type Following struct {
	peer    *Peer
	line    *framed
	message encoder // being sent
}

// Follow opens a replication stream. The call returns before the leader has answered:
// the first Recv tells.
func (r *Peer) Follow(ctx context.Context, f Follow) (*Following, error) {
	line, err := r.open(ctx, methodFollow)
	if err != nil {
		return nil, lost(fault.LeaderUnavailable, r.name(), err)
	}
	s := &Following{peer: r, line: line}
	if err := s.send(&followRequest{opening: &f}); err != nil {
		line.close()
		return nil, err
	}
	return s, nil
}

func (f *Following) send(m *followRequest) error { return f.with(m, f.line.send) }

func (f *Following) with(m *followRequest, send func(byte, *encoder) error) error {
	m.encode(&f.message)
	if err := send(frameMessage, &f.message); err != nil {
		return lost(fault.LeaderUnavailable, f.peer.name(), err) // Recv says why
	}
	return nil
}

// Send says where the follower stands. It may wait for a leader that does not read.
func (f *Following) Send(m *FromFollower) error { return f.send(&followRequest{from: m}) }

// Post is Send that waits for nobody. It may be called once Ready has said so.
func (f *Following) Post(m *FromFollower) error {
	return f.with(&followRequest{from: m}, f.line.post)
}

// Ready says whether a Post would be written at once, as far as anybody knows.
func (f *Following) Ready() bool { return f.line.ready() }

// Recv fills m, whose lists it uses again; the bytes in them are new. An error of the
// leader's is what it answered; another one is LeaderUnavailable.
func (f *Following) Recv(m *FromLeader) error {
	b, given, err := f.line.next()
	if err == nil {
		err = (&followResponse{m}).decode(b, given)
	}
	if err == nil {
		return nil
	}
	if end := (*ending)(nil); errors.As(err, &end) && end.problem == nil {
		return fault.New(fault.LeaderUnavailable, "%s ended the stream", f.peer.name())
	}
	if answer, _ := reply(err); answer != nil {
		return answer
	}
	return lost(fault.LeaderUnavailable, f.peer.name(), err)
}

// Close ends the stream: calls that wait return.
func (f *Following) Close() { f.line.close() }

package rpc

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	"tidewire/internal/fault"
	"tidewire/internal/rpc/tidewirepb"
)

// Following is the follower's end of a replication stream. Send may be called by one
// goroutine and Recv by another. Any error ends the stream; Close does too.
type Following struct {
	peer   *Peer
	stream grpc.BidiStreamingClient[tidewirepb.FollowRequest, tidewirepb.FollowResponse]
	end    context.CancelFunc
}

// Follow opens a replication stream. The call returns before the leader has answered:
// the first Recv tells.
func (r *Peer) Follow(ctx context.Context, f Follow) (*Following, error) {
	ctx, end := context.WithCancel(r.outgoing(ctx))
	stream, err := r.broker.Follow(ctx)
	if err == nil {
		err = stream.SendMsg(&followRequest{opening: &f})
	}
	if err != nil {
		end()
		return nil, lost(fault.LeaderUnavailable, r.name(), err)
	}
	return &Following{peer: r, stream: stream, end: end}, nil
}

// Send says where the follower stands. It may wait for a leader that does not read.
func (f *Following) Send(m *FromFollower) error {
	if err := f.stream.SendMsg(&followRequest{from: m}); err != nil {
		return lost(fault.LeaderUnavailable, f.peer.name(), err) // Recv says why
	}
	return nil
}

// Recv fills m, whose lists it uses again; the bytes in them are new. An error of the
// leader's is what it answered; another one is LeaderUnavailable.
func (f *Following) Recv(m *FromLeader) error {
	err := f.stream.RecvMsg(&followResponse{m})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF):
		return fault.New(fault.LeaderUnavailable, "%s ended the stream", f.peer.name())
	}
	if answer, _ := reply(err); answer != nil {
		return answer
	}
	return lost(fault.LeaderUnavailable, f.peer.name(), err)
}

// Close ends the stream: calls that wait return.
func (f *Following) Close() { f.end() }

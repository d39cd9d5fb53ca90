package rpc

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/tap"

	"tidewire/internal/fault"
	"tidewire/internal/rpc/tidewirepb"
)

// ours begins the names of the services that only nodes call.
const ours = "/tidewire.v1."

// admit looks at a call before anything of it is read.
func (s *Server) admit(ctx context.Context, info *tap.Info) (context.Context, error) {
	if !strings.HasPrefix(info.FullMethodName, ours) {
		return ctx, nil // health, which anybody may ask for
	}
	md, _ := metadata.FromIncomingContext(ctx)
	if md == nil {
		md = info.Header
	}
	i, f := readIdentity(md)
	if f == nil {
		f = i.meant(s.cfg.Self().Node, s.cfg.Cluster())
	}
	if f == nil {
		return ctx, nil
	}
	if strings.HasPrefix(info.FullMethodName, ours+"Coordinator/") {
		f.Kind = fault.CoordinatorUnavailable
	}
	return ctx, refuse(f)
}

// refuse ends a call of which nothing was done.
func refuse(f *fault.Error) error { return statusWith(codes.FailedPrecondition, untouched(f)) }

func absent(kind fault.Kind, role string) error {
	return refuse(fault.New(kind, "this node does not serve as a %s, or not yet", role))
}

// streaming serves a stream until serve returns, end is closed or the server stops. A
// stop cancels serve's ctx, gives it a moment to end in order, and then ends the stream
// under it. What of serve still runs when the stream has ended, Run waits for.
func (s *Server) streaming(ctx context.Context, moment time.Duration, end <-chan struct{}, serve func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	served := make(chan error, 1)
	s.serving.Go(func() { served <- serve(ctx) })
	select {
	case err := <-served:
		return err
	case <-end:
		return errEnded
	case <-s.stopping:
	}
	cancel(errStopping)
	timer := time.NewTimer(moment)
	defer timer.Stop()
	select {
	case <-served:
	case <-end:
	case <-timer.C:
	}
	return errStopping
}

var errEnded = fault.New(fault.LeaderUnavailable, "the other node ended the stream")

var errStopping = fault.New(fault.Draining, "the node is stopping")

type coordinatorService struct {
	tidewirepb.UnimplementedCoordinatorServer
	s *Server
}

type brokerService struct {
	tidewirepb.UnimplementedBrokerServer
	s *Server
}

type nodeService struct {
	tidewirepb.UnimplementedNodeServer
	s *Server
}

// Coordinator, Broker and Node say what the server serves; each may be called while
// it runs. What is not set is refused.
func (s *Server) Coordinator(b CoordinatorBackend) { s.coordinator.Store(&b) }

// Broker sets what answers calls to the broker.
func (s *Server) Broker(b BrokerBackend) { s.broker.Store(&b) }

// Node sets what answers calls to the node.
func (s *Server) Node(b NodeBackend) { s.node.Store(&b) }

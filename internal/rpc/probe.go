package rpc

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"tidewire/internal/cluster"
	"tidewire/internal/rpc/tidewirepb"
)

// Probe finds out whether a life of a node goes on, on a connection of its own: that of
// the calls may be broken, or wait before it tries again.
func (p *Peers) Probe(ctx context.Context, n cluster.Node) cluster.Outcome {
	outcome, life := p.probe(ctx, n.Addresses.RPC)
	switch {
	case outcome != cluster.Answered:
		return outcome
	case life.Node != n.ID, life.Epoch == 0, life.Epoch > n.BrokerEpoch:
		// It was started anew, or its address has gone to another.
		return cluster.Refused
	}
	return cluster.Answered // a process that has yet to learn of its newest life included
}

// probe says who listens at an address.
func (p *Peers) probe(ctx context.Context, address string) (cluster.Outcome, cluster.Life) {
	conn, err := p.cfg.Dialer.DialContext(ctx, KindProbe, address)
	if err != nil {
		if errors.Is(err, syscall.ECONNREFUSED) {
			return cluster.Refused, cluster.Life{}
		}
		return cluster.Silent, cluster.Life{}
	}
	once := &single{Conn: conn}
	defer func() { _ = conn.Close() }() // grpc has closed it, if it took it
	client, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(once.take), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{})))
	if err != nil {
		return cluster.Silent, cluster.Life{}
	}
	defer func() { _ = client.Close() }() // its one connection goes with it
	meant := &Peer{peers: p}
	a, err := tidewirepb.NewBrokerClient(client).Probe(meant.outgoing(ctx), &tidewirepb.ProbeRequest{})
	if err == nil {
		if life, err := lifeOf(a.Life); err == nil {
			return cluster.Answered, life
		}
	}
	if once.refused.Load() {
		return cluster.Refused, cluster.Life{}
	}
	return cluster.Silent, cluster.Life{}
}

// single gives one connection to whoever dials, once.
type single struct {
	net.Conn
	taken   atomic.Bool
	refused atomic.Bool
}

func (s *single) take(context.Context, string) (net.Conn, error) {
	if s.taken.Swap(true) {
		return nil, net.ErrClosed
	}
	return s, nil
}

// Read and Write tell a refusal that came late, as it does through a test's proxy.
func (s *single) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	return n, s.note(err)
}

func (s *single) Write(b []byte) (int, error) {
	n, err := s.Conn.Write(b)
	return n, s.note(err)
}

func (s *single) note(err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) {
		s.refused.Store(true)
	}
	return err
}

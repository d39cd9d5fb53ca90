package rpc

import (
	"context"
	"net"

	"tidewire/internal/ident"
)

// Kinds of connections between nodes, as a test that cuts links names them.
const (
	KindRPC    = "rpc"
	KindProbe  = "probe"
	KindRaft   = "raft"
	KindGossip = "gossip"
)

// Dialer opens every connection of a node to another one, and is the one place
// where tests put themselves between nodes: see Through in a binary built with the
// tag faults.
type Dialer struct {
	Self ident.NodeID
	seam
}

// DialContext connects to another node over TCP.
func (d *Dialer) DialContext(ctx context.Context, kind, address string) (net.Conn, error) {
	return d.dial(ctx, d.Self, kind, address)
}

// Datagram says where a packet for another node goes, and as which bytes.
func (d *Dialer) Datagram(kind, address string, packet []byte) (to string, bytes []byte) {
	return d.datagram(d.Self, kind, address, packet)
}

func direct(ctx context.Context, address string) (net.Conn, error) {
	// Keepalive is what grpc, raft and gossip do for themselves, and sooner.
	d := net.Dialer{KeepAlive: -1}
	return d.DialContext(ctx, "tcp", address)
}

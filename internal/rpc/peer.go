package rpc

import (
	"context"
	"errors"
	"math"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc/tidewirepb"
)

const (
	// lookEvery is how often a connection is looked at.
	lookEvery = 250 * time.Millisecond
	// unusedLimit ends a connection to an address that nobody asked for.
	unusedLimit = time.Minute
	// connectLimit bounds one try to connect.
	connectLimit = time.Second
)

// Peer is another node, and what can be asked of it. Everything of it may be called
// concurrently. An error is a *fault.Error: what the other node answered; or
// LeaderUnavailable (of a coordinator: CoordinatorUnavailable) where surely nothing
// was done; or UnknownOutcome where something was to be changed and nobody knows.
type Peer struct {
	peers   *Peers
	node    ident.NodeID // zero: whoever listens at address
	address string

	ctx    context.Context // ends with the peer
	cancel context.CancelCauseFunc
	conn   *grpc.ClientConn
	live   atomic.Pointer[watched] // the latest connection
	used   atomic.Bool             // since the last look
	stamp  atomic.Pointer[stamp]

	coordinator tidewirepb.CoordinatorClient
	broker      tidewirepb.BrokerClient
	services    tidewirepb.NodeClient

	appends appender
}

func newPeer(p *Peers, id ident.NodeID, address string) (*Peer, error) {
	r := &Peer{peers: p, node: id, address: address}
	conn, err := grpc.NewClient("passthrough:///"+address, append(p.cfg.Metrics.calling(),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(r.dial), grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithIdleTimeout(0),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(maxListBytes), grpc.MaxCallSendMsgSize(math.MaxInt32)),
		grpc.WithInitialWindowSize(windowBytes), grpc.WithInitialConnWindowSize(connWindowBytes),
		grpc.WithReadBufferSize(bufferBytes), grpc.WithWriteBufferSize(bufferBytes),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: connectLimit,
		}),
	)...)
	if err != nil {
		return nil, fault.New(fault.LeaderUnavailable, "%s is no address of a node: %w", address, err)
	}
	r.conn = conn
	r.ctx, r.cancel = context.WithCancelCause(p.ctx)
	r.coordinator = tidewirepb.NewCoordinatorClient(conn)
	r.broker = tidewirepb.NewBrokerClient(conn)
	r.services = tidewirepb.NewNodeClient(conn)
	r.appends.peer = r
	return r, nil
}

// name is the node in errors.
func (r *Peer) name() string {
	if r.node == (ident.NodeID{}) {
		return "the node at " + r.address
	}
	return "node " + r.node.String()
}

// watched is a connection that notes when something last came over it.
type watched struct {
	net.Conn
	began  time.Time
	heard  atomic.Int64 // ns after began
	closed atomic.Bool
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if n > 0 {
		w.heard.Store(int64(time.Since(w.began)))
	}
	return n, err
}

func (w *watched) Close() error {
	w.closed.Store(true)
	return w.Conn.Close()
}

func (w *watched) silent() time.Duration { return time.Since(w.began) - time.Duration(w.heard.Load()) }

func (r *Peer) dial(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	conn, err := r.peers.cfg.Dialer.DialContext(ctx, KindRPC, address)
	if err != nil {
		return nil, err
	}
	w := &watched{Conn: &weighed{conn, r.peers.cfg.Metrics}, began: time.Now()}
	r.live.Store(w)
	return w, nil
}

// run looks after the connection until the peer ends. A peer that stopped without a
// word (paused, cut off) is found by its silence: one that has been silent for a
// while is asked for any answer at all, and when none comes the connection is closed,
// so that everything that waits on it hears of it.
func (r *Peer) run() {
	defer func() {
		r.cancel(errClosed)
		_ = r.conn.Close() // what is under way ends with it
		r.appends.wait()
	}()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	used := time.Now()
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-tick.C:
		}
		switch {
		case !r.peers.current(r):
			r.cancel(errors.New("the node has gone, or has another address"))
			return
		case r.used.Swap(false):
			used = time.Now()
		case r.node == (ident.NodeID{}) && time.Since(used) > unusedLimit:
			return
		}
		if w := r.live.Load(); w != nil && !w.closed.Load() && w.silent() >= aliveEvery-lookEvery {
			r.ask(w)
		}
	}
}

// ask waits for a sign of life on a connection, and closes it if none comes.
func (r *Peer) ask(w *watched) {
	before := w.heard.Load()
	ctx, cancel := context.WithTimeout(r.ctx, aliveEvery)
	defer cancel()
	_, err := healthpb.NewHealthClient(r.conn).Check(ctx, &healthpb.HealthCheckRequest{})
	if err == nil || w.heard.Load() != before || r.ctx.Err() != nil {
		return
	}
	if !w.closed.Load() {
		r.peers.cfg.Logger.Info("a node is silent: its connection is closed", "node", r.node, "address", r.address, "silent", w.silent())
		_ = w.Close() // nobody waits for what is under way on it
	}
}

// stamp is the metadata of this node's calls, while it is who it is.
type stamp struct {
	identity
	metadata.MD
}

// identity is what this node says of a call.
func (r *Peer) identity() identity {
	return identity{cluster: r.peers.cfg.Cluster(), source: r.peers.cfg.Self(), target: r.node}
}

// outgoing gives a call its metadata.
func (r *Peer) outgoing(ctx context.Context) context.Context {
	if !r.used.Load() {
		r.used.Store(true)
	}
	i := r.identity()
	s := r.stamp.Load()
	if s == nil || s.identity != i {
		s = &stamp{i, metadata.MD{identityKey: {i.String()}}}
		r.stamp.Store(s)
	}
	return metadata.NewOutgoingContext(ctx, s.MD)
}

// harm is what a call that broke may have done.
type harm uint8

const (
	changes harm = iota // it may have changed something
	asks                // it changes nothing
)

// call makes a unary call. kind is the error of a node that cannot be reached.
func call[Q, A any](ctx context.Context, r *Peer, kind fault.Kind, h harm, do func(context.Context, *Q, ...grpc.CallOption) (*A, error), q *Q) (*A, error) {
	var reached peer.Peer
	a, err := do(r.outgoing(ctx), q, grpc.Peer(&reached))
	if err == nil {
		return a, nil
	}
	f, refused := reply(err)
	switch {
	case f != nil:
		return nil, f
	case h == changes && !refused && reached.Addr != nil:
		return nil, lost(fault.UnknownOutcome, r.name(), err)
	}
	return nil, lost(kind, r.name(), err)
}

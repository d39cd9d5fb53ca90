package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/rpc/tidewirepb"
)

// ServerConfig tunes the server. A zero field means its default.
type ServerConfig struct {
	Bind      string        // required: host:port; port 0 picks one
	Advertise string        // what other nodes dial; default: the address listened on
	StopLimit time.Duration // how long calls under way may take at the end; 5s
	MostOpen  int           // connections at once; one more is closed; 256
	IdleLimit time.Duration // a connection without a call for so long ends, and one that does not begin to speak in a third of it; 15s
	// Self and Cluster say who serves, as far as it is known yet: a call that means
	// another node or cluster is refused. Default: not known.
	Self    func() cluster.Life
	Cluster func() ident.ClusterID
	Metrics *Metrics // nil: its own, for nobody
	Logger  *slog.Logger
}

const (
	// maxHeaderBytes bounds what a call says before its messages.
	maxHeaderBytes = 16 << 10
	// maxStreams bounds the calls under way on a connection. Most of them wait for
	// records to read.
	maxStreams = 4096
	// windowBytes is how much of a stream may be on its way to one that does not read
	// it; connWindowBytes likewise of all streams to a machine that does not.
	windowBytes     = 1 << 20
	connWindowBytes = 4 << 20
	// Both ends of a connection read through a buffer of so many bytes; gRPC's write
	// through one too.
	bufferBytes = 64 << 10
	// aliveEvery is how long a connection may be silent before it is asked for a sign
	// of life, and how long that may take.
	aliveEvery = time.Second
)

// Server is the listener of calls between nodes. It carries the standard health
// service, what nodes ask of one another, and the streams between brokers.
type Server struct {
	cfg    ServerConfig
	lis    net.Listener
	grpc   *grpc.Server
	health *health.Server

	coordinator atomic.Pointer[CoordinatorBackend]
	broker      atomic.Pointer[BrokerBackend]
	node        atomic.Pointer[NodeBackend]

	stopping chan struct{}  // closed when Run begins to end
	serving  sync.WaitGroup // goroutines of streams
	carrying sync.WaitGroup // framed connections
	lines    *lines
}

// NewServer does no I/O and starts nothing. The health service says
// NOT_SERVING until Ready; other services are refused until they are set.
func NewServer(cfg ServerConfig) *Server {
	if cfg.StopLimit == 0 {
		cfg.StopLimit = 5 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.MostOpen = cmp.Or(cfg.MostOpen, 256)
	cfg.IdleLimit = cmp.Or(cfg.IdleLimit, 15*time.Second)
	if cfg.Self == nil {
		cfg.Self = func() cluster.Life { return cluster.Life{} }
	}
	if cfg.Cluster == nil {
		cfg.Cluster = func() ident.ClusterID { return ident.ClusterID{} }
	}
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(nil)
	}
	s := &Server{cfg: cfg, health: health.NewServer(), stopping: make(chan struct{})}
	s.lines = newLines(func(f *framed) {
		cfg.Logger.Info("a node is silent: its stream is closed", "address", f.conn.RemoteAddr().String())
	})
	s.grpc = grpc.NewServer(append(cfg.Metrics.serving(),
		grpc.Creds(newDoor(s)), grpc.ForceServerCodecV2(codec{}), grpc.InTapHandle(s.admit), grpc.WaitForHandlers(true),
		grpc.ConnectionTimeout(cfg.IdleLimit/3), grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxRecvMsgSize(maxMessageBytes), grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.InitialWindowSize(windowBytes), grpc.InitialConnWindowSize(connWindowBytes),
		grpc.ReadBufferSize(bufferBytes), grpc.WriteBufferSize(bufferBytes),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: cfg.IdleLimit, Time: aliveEvery, Timeout: aliveEvery}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: aliveEvery / 2, PermitWithoutStream: true}),
	)...)
	healthpb.RegisterHealthServer(s.grpc, s.health)
	tidewirepb.RegisterCoordinatorServer(s.grpc, coordinatorService{s: s})
	tidewirepb.RegisterBrokerServer(s.grpc, brokerService{s: s})
	tidewirepb.RegisterNodeServer(s.grpc, nodeService{s: s})
	s.Ready(false)
	return s
}

// Open opens the listener, so that Addr is settled before Run. Run
// must follow: it closes the listener.
func (s *Server) Open() error {
	l, err := net.Listen("tcp", s.cfg.Bind)
	if err != nil {
		return fmt.Errorf("listen for rpc: %w", err)
	}
	s.lis = &limited{Listener: l, most: int64(s.cfg.MostOpen)}
	return nil
}

// Ready says whether this node is able to serve.
func (s *Server) Ready(ready bool) {
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if ready {
		status = healthpb.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus("", status)
}

// Addr is the address others dial, with the port that was picked.
func (s *Server) Addr() string {
	switch {
	case s.cfg.Advertise != "":
		return s.cfg.Advertise
	case s.lis != nil:
		return s.lis.Addr().String()
	}
	return s.cfg.Bind
}

// Run serves until ctx ends. Then it says NOT_SERVING, takes no new call, ends
// streams in order, and cuts what is still under way after StopLimit. It returns once
// no backend is called any more.
func (s *Server) Run(ctx context.Context) error {
	if s.lis == nil {
		return errors.New("rpc server: Run before Open")
	}
	var wg sync.WaitGroup
	served := make(chan error, 1)
	wg.Go(func() { served <- s.grpc.Serve(s.lis) })
	defer wg.Wait()
	select {
	case err := <-served:
		return fmt.Errorf("serve rpc: %w", err)
	case <-ctx.Done():
	}
	s.health.Shutdown()
	close(s.stopping)
	defer s.lines.close()
	defer s.serving.Wait()
	stopped := make(chan struct{})
	wg.Go(func() { s.grpc.GracefulStop(); s.carrying.Wait(); close(stopped) })
	limit := time.NewTimer(s.cfg.StopLimit)
	defer limit.Stop()
	select {
	case <-stopped:
	case <-limit.C:
		s.cfg.Logger.Info("rpc calls were cut", "after", s.cfg.StopLimit)
		s.grpc.Stop() // GracefulStop returns then too
		s.lines.close()
		<-stopped // and then no backend is called any more
	}
	return nil
}

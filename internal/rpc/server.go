package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
)

// ServerConfig tunes the gRPC server. A zero field means its default.
type ServerConfig struct {
	Bind      string        // required: host:port; port 0 picks one
	Advertise string        // what other nodes dial; default: the address listened on
	StopLimit time.Duration // how long calls under way may take at the end; 5s
	MostOpen  int           // connections at once; one more is closed; 32
	IdleLimit time.Duration // a connection without a call for so long ends, and one that does not begin to speak in a third of it; 15s
	Logger    *slog.Logger
}

// maxRequestBytes is plenty for the name of a service, which is all a health
// check says.
const maxRequestBytes = 16 << 10

// Server is the listener of calls between nodes. It carries the standard
// health service; in this version nothing else.
type Server struct {
	cfg    ServerConfig
	lis    net.Listener
	grpc   *grpc.Server
	health *health.Server
}

// NewServer does no I/O and starts nothing. The health service says
// NOT_SERVING until Ready.
func NewServer(cfg ServerConfig) *Server {
	if cfg.StopLimit == 0 {
		cfg.StopLimit = 5 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.MostOpen = cmp.Or(cfg.MostOpen, 32)
	cfg.IdleLimit = cmp.Or(cfg.IdleLimit, 15*time.Second)
	s := &Server{cfg: cfg, health: health.NewServer(), grpc: grpc.NewServer(
		grpc.ConnectionTimeout(cfg.IdleLimit/3), grpc.MaxConcurrentStreams(16), grpc.MaxRecvMsgSize(maxRequestBytes), grpc.MaxHeaderListSize(maxRequestBytes),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: cfg.IdleLimit, Time: cfg.IdleLimit, Timeout: cfg.IdleLimit / 3}),
	)}
	healthpb.RegisterHealthServer(s.grpc, s.health)
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

// Run serves until ctx ends. Then it says NOT_SERVING, takes no new call, and
// cuts those that are still under way after StopLimit.
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
	stopped := make(chan struct{})
	wg.Go(func() { s.grpc.GracefulStop(); close(stopped) })
	limit := time.NewTimer(s.cfg.StopLimit)
	defer limit.Stop()
	select {
	case <-stopped:
	case <-limit.C:
		s.cfg.Logger.Info("rpc calls were cut", "after", s.cfg.StopLimit)
		s.grpc.Stop() // GracefulStop returns then too
	}
	return nil
}

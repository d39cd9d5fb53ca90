package rpc_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"tidewire/internal/rpc"
)

func TestHealthFollowsReady(t *testing.T) {
	s := rpc.NewServer(rpc.ServerConfig{Bind: "127.0.0.1:0", StopLimit: 100 * time.Millisecond})
	if err := s.Open(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	conn, err := grpc.NewClient(s.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	client := healthpb.NewHealthClient(conn)
	expect := func(want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		r, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
		if err != nil || r.Status != want {
			t.Fatalf("%v, %v; want %v", r, err, want)
		}
	}
	expect(healthpb.HealthCheckResponse_NOT_SERVING)
	s.Ready(true)
	expect(healthpb.HealthCheckResponse_SERVING)

	// A watch never ends by itself: the stop cuts it at its limit.
	w, err := client.Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := w.Recv(); err != nil || r.Status != healthpb.HealthCheckResponse_SERVING {
		t.Fatal(r, err)
	}
	cancel()
	if r, err := w.Recv(); err != nil || r.Status != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Fatalf("the drain is not announced: %v, %v", r, err)
	}
	if _, err := w.Recv(); err == nil {
		t.Fatal("the watch was not cut")
	}
	wg.Wait()
}

func TestRunNeedsAListener(t *testing.T) {
	s := rpc.NewServer(rpc.ServerConfig{Bind: "127.0.0.1:0"})
	if err := s.Run(t.Context()); err == nil {
		t.Fatal("ran without a listener")
	}
}

package rpc_test

import (
	"context"
	"errors"
	"io"
	"net"
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

// Whatever a stranger does or leaves undone, its connections are few and end.
func TestConnectionsAreBoundedAndIdleOnesEnd(t *testing.T) {
	s := rpc.NewServer(rpc.ServerConfig{Bind: "127.0.0.1:0", MostOpen: 4, IdleLimit: 1200 * time.Millisecond, StopLimit: 100 * time.Millisecond})
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
	defer wg.Wait()
	defer cancel()
	const hello = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	var idle []net.Conn
	for i := range 40 {
		conn, err := net.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if i%2 == 0 {
			_, _ = conn.Write([]byte(hello)) // it may be closed by then
		}
		idle = append(idle, conn)
	}
	for i, conn := range idle {
		if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		var e net.Error
		if _, err := io.Copy(io.Discard, conn); errors.As(err, &e) && e.Timeout() {
			t.Fatalf("connection %d stays open", i)
		}
	}
	conn, err := grpc.NewClient(s.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Errorf("no place was given back: %v", err)
	}
}

func TestRunNeedsAListener(t *testing.T) {
	s := rpc.NewServer(rpc.ServerConfig{Bind: "127.0.0.1:0"})
	if err := s.Run(t.Context()); err == nil {
		t.Fatal("ran without a listener")
	}
}

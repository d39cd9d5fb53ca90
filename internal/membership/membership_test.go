package membership_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"tidewire/internal/membership"
)

// buffer may be written by memberlist's goroutines while it is read.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestALoneNodeListensAndLeaves(t *testing.T) {
	var out buffer
	m := membership.New(membership.Config{
		Name: "one", Bind: "127.0.0.1:0", Label: "cluster",
		Logger: slog.New(slog.NewTextHandler(&out, nil)),
	})
	if err := m.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	addr := m.Addr()
	if host, port, err := net.SplitHostPort(addr); err != nil || host != "127.0.0.1" || port == "0" {
		t.Fatalf("%s, %v", addr, err)
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := m.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	cancel()
	wg.Wait()
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Fatal("still listening after it left")
	}
	if s := out.String(); s != "" {
		t.Fatalf("not quiet: %s", s)
	}
}

// Connections are closed at once, whatever is said on them, and packets leave
// no trace: neither costs a descriptor or a line of the log.
func TestStrangersAreNotHeard(t *testing.T) {
	var out buffer
	m := membership.New(membership.Config{
		Name: "one", Bind: "127.0.0.1:0", Label: "cluster",
		Logger: slog.New(slog.NewTextHandler(&out, nil)),
	})
	if err := m.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		conn, err := net.Dial("tcp", m.Addr())
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		var e net.Error
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.As(err, &e) && e.Timeout() {
			t.Fatalf("an idle connection is kept: %v", err)
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := net.Dial("udp", m.Addr())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		if _, err := conn.Write([]byte(strings.Repeat(string(rune(i%250)), 1+i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(conn.Close(), m.Close()); err != nil {
		t.Fatal(err)
	}
	if s := out.String(); s != "" {
		t.Errorf("%d bytes of log: %.300s", len(s), s)
	}
}

func TestAnAdvertisedHostIsTakenAsGiven(t *testing.T) {
	m := membership.New(membership.Config{Name: "one", Bind: "127.0.0.1:0", Advertise: "127.0.0.9:0"})
	if err := m.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if host, port, err := net.SplitHostPort(m.Addr()); err != nil || host != "127.0.0.9" || port == "0" {
		t.Fatal(m.Addr(), err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestBadAddressesAreNamed(t *testing.T) {
	for _, bind := range []string{"", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:70000"} {
		err := membership.New(membership.Config{Name: "one", Bind: bind}).Open(t.Context())
		if err == nil || !strings.Contains(err.Error(), "gossip address") {
			t.Errorf("%q: %v", bind, err)
		}
	}
}

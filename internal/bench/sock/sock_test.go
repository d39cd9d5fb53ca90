//go:build linux

package sock_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tidewire/internal/bench/sock"
)

// lines is a handler that takes whole lines.
type lines struct {
	got   chan string
	ended chan error
}

func (l *lines) Receive(b []byte) (int, error) {
	used := 0
	for {
		line, _, ok := bytes.Cut(b[used:], []byte{'\n'})
		if !ok {
			return used, nil
		}
		if string(line) == "bad" {
			return used, errors.New("a bad line")
		}
		l.got <- string(line)
		used += len(line) + 1
	}
}

func (l *lines) Ended(err error) { l.ended <- err }

func newLines() *lines { return &lines{make(chan string, 64), make(chan error, 1)} }

// echo serves until the test ends.
func echo(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			})
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return netip.MustParseAddrPort(l.Addr().String())
}

func runLoop(t *testing.T, gather time.Duration) *sock.Loop {
	t.Helper()
	l, err := sock.NewLoop(gather)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		l.Close()
	})
	return l
}

func TestALoopCarriesManyConnections(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for _, gather := range []time.Duration{0, time.Millisecond} {
		t.Run(gather.String(), func(t *testing.T) { carry(t, gather) })
	}
}

func carry(t *testing.T, gather time.Duration) {
	addr := echo(t)
	l := runLoop(t, gather)
	big := string(bytes.Repeat([]byte("x"), 600<<10)) // more than a socket takes at once
	for range 20 {
		c, err := sock.Dial(addr)
		if err != nil {
			t.Fatal(err)
		}
		h := newLines()
		if err := c.Write([]byte("early\nhal")); err != nil {
			t.Fatal(err)
		}
		if b, err := c.Fetch(time.Now().Add(10 * time.Second)); err != nil || len(b) == 0 {
			t.Fatalf("%q, %v", b, err)
		}
		if err := l.Add(c, h); err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"f\n", big, "\n"} {
			if err := c.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		for _, want := range []string{"early", "half", big} {
			if got := <-h.got; got != want {
				t.Fatalf("got %.20q of %d bytes, want %.20q", got, len(got), want)
			}
		}
		c.Cut()
		if err := c.Write([]byte("x")); !errors.Is(err, sock.ErrCut) {
			t.Errorf("a write after the cut: %v", err)
		}
	}
}

func TestAHandlersErrorEndsItsConnection(t *testing.T) {
	addr := echo(t)
	l := runLoop(t, 0)
	c, err := sock.Dial(addr)
	if err != nil {
		t.Fatal(err)
	}
	h := newLines()
	if err := errors.Join(l.Add(c, h), c.Write([]byte("good\nbad\n"))); err != nil {
		t.Fatal(err)
	}
	if err := <-h.ended; err == nil || err.Error() != "a bad line" {
		t.Errorf("ended with %v", err)
	}
}

func TestNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.MustParseAddrPort(l.Addr().String())
	l.Close()
	if _, err := sock.Dial(addr); err == nil {
		t.Error("connected to nobody")
	}
}

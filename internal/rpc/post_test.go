package rpc

import (
	"bytes"
	"context"
	"net"
	"testing"
)

// overTCP is a stream over TCP, and its other end.
func overTCP(t *testing.T) (f, other *framed) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	f, other = newFramed(context.Background(), near, NewMetrics(nil)), newFramed(context.Background(), far, NewMetrics(nil))
	t.Cleanup(f.close)
	t.Cleanup(other.close)
	return f, other
}

func numbered(i, size int) (e encoder) {
	e.begin()
	e.varint(1, uint64(i+1))
	e.bytes(2, bytes.Repeat([]byte{byte(i)}, size))
	return e
}

// Who posts waits for nobody. What the other end did not take comes whole, and before what
// is sent then.
func TestAPostWaitsForNobody(t *testing.T) {
	for _, size := range []int{100, referFrom - 1, referFrom, 300 << 10} {
		f, other := overTCP(t)
		n := 0
		for f.ready() { // which the kernel bounds
			e := numbered(n, size)
			if err := f.post(frameMessage, &e); err != nil {
				t.Fatal(err)
			}
			e.begin() // it is the caller's again
			n++
		}
		last := numbered(n, size)
		sent := make(chan error, 1)
		go func() { sent <- f.send(frameMessage, &last) }()
		for i := range n + 1 {
			b, _, err := other.next()
			want := numbered(i, size)
			if err != nil || !bytes.Equal(b, bytes.Join(want.message(), nil)) {
				t.Fatalf("message %d of %d, of %d bytes, came as %d bytes: %v", i, n, size, len(b), err)
			}
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		if !f.ready() {
			t.Error("all has left, and it is not ready")
		}
	}
}

// Behind a frame that was cut nothing goes, be it sent or posted.
func TestAPostOverABrokenConnection(t *testing.T) {
	f, _ := overTCP(t)
	for f.ready() {
		e := numbered(0, 100<<10)
		if err := f.post(frameMessage, &e); err != nil {
			t.Fatal(err)
		}
	}
	f.close()
	for range 2 {
		e := numbered(1, 1)
		if f.send(frameMessage, &e) == nil {
			t.Error("something was sent behind a frame that was cut")
		}
		if e := numbered(2, 1); f.post(frameMessage, &e) == nil {
			t.Error("something was posted behind a frame that was cut")
		}
	}
}

// A connection that is no socket is never ready.
func TestAPostNeedsASocket(t *testing.T) {
	if framedOf(bytes.NewReader(nil)).ready() {
		t.Error("it is ready")
	}
}

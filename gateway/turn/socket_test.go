package turn_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/gateway/turn"
)

// sockets are the two ends of a connection over the loopback.
func sockets(t *testing.T, slow time.Duration) (server *turn.Socket, client *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	mine, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	s := &turn.Socket{}
	s.Take(theirs, slow)
	t.Cleanup(func() { mine.Close(); s.Close() })
	return s, mine.(*net.TCPConn)
}

// fill writes until the socket takes no more. The rest of the last piece is owed.
func fill(t *testing.T, s *turn.Socket, attempt *turn.Attempt, piece []byte) (sent int) {
	t.Helper()
	for {
		n, err := s.Try(attempt, piece)
		if err != nil {
			t.Fatal(err)
		}
		if sent += n; n < len(piece) {
			return sent
		}
	}
}

func TestTryTakesWhatTheSocketTakes(t *testing.T) {
	s, client := sockets(t, time.Minute)
	attempt := &turn.NewCrew().Workers()[0].Attempt
	piece := bytes.Repeat([]byte("0123456789abcdef"), 4<<10)
	sent := fill(t, s, attempt, piece)
	got := make([]byte, sent)
	if _, err := io.ReadFull(client, got); err != nil {
		t.Fatal(err)
	}
	for i, b := range got {
		if b != piece[i%len(piece)] {
			t.Fatalf("byte %d is %q", i, b)
		}
	}
	if n, err := s.Try(attempt, []byte("x")); n != 0 || err != nil {
		t.Errorf("%d bytes, %v, come before the rest of what was begun", n, err)
	}
	other := make(chan struct{})
	go func() {
		_, _ = s.Write([]byte("after"))
		close(other)
	}()
	if err := s.Rest([]byte("rest")); err != nil {
		t.Error(err)
	}
	<-other
	if _, err := io.ReadFull(client, got[:9]); err != nil || string(got[:9]) != "restafter" {
		t.Errorf("%q, %v", got[:9], err)
	}
	if n, err := s.Try(attempt, []byte("x")); n != 1 || err != nil {
		t.Errorf("a socket with room takes %d bytes, %v", n, err)
	}
	one := []byte("x")
	if allocs := testing.AllocsPerRun(100, func() { _, _ = s.Try(attempt, one) }); allocs != 0 {
		t.Errorf("%v allocations a write", allocs)
	}
}

func TestAClientThatTakesNothingIsStuck(t *testing.T) {
	s, client := sockets(t, 400*time.Millisecond)
	attempt := &turn.NewCrew().Workers()[0].Attempt
	fill(t, s, attempt, make([]byte, 64<<10))
	// For as long as it takes a little, it is slow and no more.
	slow := make(chan error, 1)
	go func() {
		slow <- s.Rest(make([]byte, 1<<20))
	}()
	tick := time.NewTicker(150 * time.Millisecond)
	defer tick.Stop()
	buf := make([]byte, 512<<10)
	for writing := true; writing; {
		select {
		case err := <-slow:
			if err != nil {
				t.Fatalf("a slow client: %v", err)
			}
			writing = false
		case <-tick.C:
			if _, err := client.Read(buf); err != nil {
				t.Fatal(err)
			}
		}
	}
	if s.Stuck() {
		t.Fatal("a slow client is called stuck")
	}
	began := time.Now()
	if _, err := s.Write(make([]byte, 32<<20)); !errors.Is(err, os.ErrDeadlineExceeded) || !s.Stuck() {
		t.Fatalf("%v, stuck %v", err, s.Stuck())
	}
	if took := time.Since(began); took < 400*time.Millisecond || took > 3*time.Second {
		t.Errorf("after %v", took)
	}
	if _, err := s.Try(attempt, []byte("x")); err == nil {
		t.Error("bytes after a piece that was cut")
	}
}

func TestWhatIsGivenUpHoldsNobody(t *testing.T) {
	s, _ := sockets(t, time.Minute)
	attempt := &turn.NewCrew().Workers()[0].Attempt
	fill(t, s, attempt, make([]byte, 64<<10))
	s.Abandon()
	if _, err := s.Write([]byte("x")); err == nil {
		t.Error("a write to a connection that was given up")
	}
}

func TestTheNodeOwesABoundedAmount(t *testing.T) {
	c := turn.NewCrew()
	var shares []interface{ Close() }
	for {
		share := c.Owe(1 << 20)
		if share == nil {
			break
		}
		shares = append(shares, share)
	}
	if n := len(shares); n < 100 || n > 256 {
		t.Errorf("%d shares of 1 MiB", n)
	}
	if small := c.Owe(1 << 10); small == nil {
		t.Error("nothing is left for those who need little")
	}
	for _, share := range shares {
		share.Close()
	}
	if c.Owe(1<<20) == nil {
		t.Error("what is given back cannot be taken")
	}
}

func TestNothingFollowsTheLastBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, theirs := net.Pipe()
		s := &turn.Socket{}
		s.Take(theirs, time.Second)
		got := make(chan []byte, 1)
		go func() {
			b, _ := io.ReadAll(mine)
			got <- b
		}()
		attempt := &turn.NewCrew().Workers()[0].Attempt
		if n, err := s.Try(attempt, []byte("a")); n != 0 || err != nil {
			t.Errorf("a pipe takes %d bytes without waiting, %v", n, err)
		}
		_, _ = s.Write([]byte("one "))
		if err := s.Last([]byte("two")); err != nil {
			t.Error(err)
		}
		if n, err := s.Write([]byte(" three")); n != 6 || err != nil {
			t.Error(n, err)
		}
		s.Close()
		if b := <-got; string(b) != "one two" {
			t.Errorf("%q", b)
		}
	})
}

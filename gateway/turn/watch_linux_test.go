package turn

import (
	"context"
	"net"
	"sync"
	"testing"
)

type reader chan struct{}

func (r reader) Run()     { close(r) }
func (reader) Over() bool { return false }

// TestReadersWakeWhenNobodyWatchesAnyMore takes the set of sockets away: who sleeps has to
// wait itself from then on, as who comes later.
func TestReadersWakeWhenNobodyWatchesAnyMore(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var s Socket
	s.Take(conn, 0)

	crew := NewCrew()
	ctx, stop := context.WithCancel(t.Context())
	var running, open sync.WaitGroup
	defer running.Wait()
	defer stop()
	r := make(reader)
	if !crew.Sleep(&s, r, &open) {
		t.Fatal("a reader does not sleep")
	}
	running.Go(func() {
		if crew.Run(ctx) == nil {
			t.Error("that sockets are not watched is no error")
		}
	})
	if err := crew.asleep.poll.file.Close(); err != nil {
		t.Fatal(err)
	}
	<-r
	open.Wait()
	if crew.Sleep(&s, make(reader), &open) {
		t.Error("a reader sleeps that nobody wakes")
	}
}

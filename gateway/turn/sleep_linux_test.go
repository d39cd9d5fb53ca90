package turn_test

import (
	"context"
	"io"
	"sync"
	"testing"
	"time"

	"tidewire/gateway/turn"
)

// sleeper counts how often it is woken.
type sleeper chan struct{}

func (s sleeper) Run()       { s <- struct{}{} }
func (s sleeper) Over() bool { return false }

// ended is a reader of a connection that ends while it falls asleep.
type ended struct{ sleeper }

func (ended) Over() bool { return true }

func (s sleeper) woken(t *testing.T) {
	t.Helper()
	select {
	case <-s:
	case <-time.After(20 * time.Second):
		t.Fatal("a reader sleeps on")
	}
}

func running(t *testing.T) *turn.Crew {
	t.Helper()
	crew := turn.NewCrew()
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := crew.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
	return crew
}

// sleeps has a reader sleep.
func sleeps(t *testing.T, crew *turn.Crew, s *turn.Socket) sleeper {
	t.Helper()
	r := make(sleeper, 2)
	var open sync.WaitGroup
	t.Cleanup(open.Wait)
	if !crew.Sleep(s, r, &open) {
		t.Fatal("a reader does not sleep")
	}
	return r
}

func TestAReaderIsWokenByWhatComes(t *testing.T) {
	crew := running(t)
	s, client := sockets(t, time.Minute)
	for range 3 {
		r := sleeps(t, crew, s)
		if _, err := client.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		r.woken(t)
		// What was there before it sleeps wakes it as well.
		r = sleeps(t, crew, s)
		r.woken(t)
		if _, err := io.ReadFull(s, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	r := sleeps(t, crew, s)
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	r.woken(t)
}

func TestAReaderIsWokenOnce(t *testing.T) {
	crew := running(t)
	s, client := sockets(t, time.Minute)
	other, otherClient := sockets(t, time.Minute)
	for range 200 {
		r := sleeps(t, crew, s)
		var both sync.WaitGroup
		both.Go(func() { crew.Wake(s) })
		both.Go(func() { _, _ = client.Write([]byte("x")) })
		both.Wait()
		r.woken(t)
		// Whoever is told of later was looked at later: the first has been told of all.
		o := sleeps(t, crew, other)
		_, _ = otherClient.Write([]byte("x"))
		o.woken(t)
		for _, socket := range []*turn.Socket{s, other} {
			if _, err := io.ReadFull(socket, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
		if len(r) > 0 {
			t.Fatal("a reader is woken twice")
		}
	}
	crew.Wake(s) // nobody sleeps
}

func TestAReaderThatIsToldOfItsEndWakes(t *testing.T) {
	crew := running(t)
	s, _ := sockets(t, time.Minute)
	r := sleeps(t, crew, s)
	crew.Wake(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r.woken(t)
	var open sync.WaitGroup
	if crew.Sleep(s, r, &open) {
		t.Error("a reader sleeps on a socket that is closed")
	}
	open.Wait()
}

func TestAReaderThatIsOverDoesNotSleep(t *testing.T) {
	crew := running(t)
	s, _ := sockets(t, time.Minute)
	r, open := ended{make(sleeper, 2)}, sync.WaitGroup{}
	if !crew.Sleep(s, r, &open) {
		t.Fatal("it is left to wait itself")
	}
	r.woken(t)
	open.Wait()
}

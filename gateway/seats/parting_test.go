package seats

import (
	"net/http/httptest"
	"testing"
	"time"
)

func TestClientsComeBackSpreadOverAWindow(t *testing.T) {
	for _, c := range []struct {
		clients      int
		tell, window time.Duration
	}{{0, 0, 5 * time.Second}, {10, 2 * time.Millisecond, 5 * time.Second}, {10_000, 2 * time.Second, 8 * time.Second}, {100_000, 4 * time.Second, 80 * time.Second}} {
		s := New(0, 0, 0, nil)
		s.taken = c.clients
		p := s.Parting(5*time.Second, 4*time.Second)
		s.taken = 1 // the others have left meanwhile
		if again := s.Parting(5*time.Second, 4*time.Second); again != p {
			t.Errorf("%d clients: another transport has %+v, not %+v", c.clients, again, p)
		}
		now := p.began.Add(c.tell / 2)
		if due := p.Due(c.clients, now); due < c.clients/2 || due > c.clients/2+1 {
			t.Errorf("%d of %d clients are told after half of the time", due, c.clients)
		}
		if due := p.Due(c.clients, p.began.Add(c.tell)); due != c.clients {
			t.Errorf("%d of %d clients are told in the end", due, c.clients)
		}
		// Whenever it is told, nobody comes before all are, and each moment of the
		// window gets about as many.
		const draws, parts = 20_000, 20
		var counts [parts]int
		for i := range draws {
			told := p.began.Add(c.tell * time.Duration(i) / draws)
			at := told.Add(p.Return(told)).Sub(p.began.Add(c.tell + absence))
			if at < -time.Millisecond || at > c.window+time.Millisecond {
				t.Fatalf("%d clients: one comes back %s into a window of %s", c.clients, at, c.window)
			}
			counts[min(parts-1, max(0, int(at*parts/c.window)))]++
		}
		for i, n := range counts {
			if n < draws/parts*3/4 || n > draws/parts*5/4 {
				t.Errorf("%d clients: part %d of the window has %d of %d", c.clients, i, n, draws)
			}
		}
	}
}

func TestAParting(t *testing.T) {
	s := New(0, 0, 0, nil)
	for range 3 {
		if _, err := s.Take(httptest.NewRequest("GET", "/", nil)); err != nil {
			t.Fatal(err)
		}
	}
	if p := s.Parting(time.Second, time.Minute); p.ends.Sub(p.began) != 3*time.Second/tellRate {
		t.Errorf("%+v", p)
	}
}

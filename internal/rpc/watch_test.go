package rpc

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Counters are even between reads and writes, and odd within one.
func TestWhoIsTakenForDead(t *testing.T) {
	for _, c := range []struct {
		name          string
		writes, reads func(look int) uint64
		dead          int // the look at which; 0: never
	}{
		{"nothing comes", func(int) uint64 { return 0 }, func(int) uint64 { return 1 }, silentLooks + 1},
		{"something comes now and then", func(int) uint64 { return 0 }, func(i int) uint64 { return 1 + 2*uint64(i/(silentLooks-1)) }, 0},
		{"nothing more comes", func(int) uint64 { return 0 }, func(i int) uint64 { return 1 + 2*uint64(min(i, 10)) }, 10 + silentLooks},
		{"this end is busy with what came", func(int) uint64 { return 0 }, func(int) uint64 { return 2 }, 0},
		{"it is busy, and sends", func(i int) uint64 { return 2 * uint64(i) }, func(int) uint64 { return 2 }, 0},
		{"it is busy, and what it sends is not taken", func(int) uint64 { return 1 }, func(int) uint64 { return 2 }, silentLooks + 1},
		{"what it sends is not taken, and something comes", func(int) uint64 { return 1 }, func(i int) uint64 { return 1 + 2*uint64(i) }, 0},
	} {
		var w watch
		died := 0
		for look := 1; look <= 100 && died == 0; look++ {
			if dead, _ := w.seen(c.writes(look), c.reads(look)); dead {
				died = look
			}
		}
		if died != c.dead {
			t.Errorf("%s: dead at look %d, want %d", c.name, died, c.dead)
		}
	}
}

func TestWhoSaysThatItLives(t *testing.T) {
	said := func(writes func(look int) uint64) (n int) {
		var w watch
		for look := 1; look <= 100; look++ {
			if _, alive := w.seen(writes(look), 1); alive {
				n++
			}
		}
		return n
	}
	if n := said(func(i int) uint64 { return 2 * uint64(i) }); n != 0 {
		t.Errorf("one that sends says %d times that it lives", n)
	}
	if n := said(func(int) uint64 { return 1 }); n > restLooks {
		t.Errorf("one whose message is not taken adds to it %d times", n)
	}
	if n := said(func(int) uint64 { return 4 }); n < 100-restLooks-1 { // each would count as a write
		t.Errorf("one that sends nothing says %d times of 100 that it lives", n)
	}
}

type end struct {
	after time.Duration
	why   error
}

// looked is two ends of a stream, each in the hands of who looks at it or of nobody.
func looked(t *testing.T, both bool) (near, far *framed, ended chan end) {
	a, b := net.Pipe()
	near, far = newFramed(context.Background(), a, NewMetrics(nil)), newFramed(context.Background(), b, NewMetrics(nil))
	ended = make(chan end, 2)
	began := time.Now()
	var reading sync.WaitGroup
	for i, f := range []*framed{near, far} {
		reading.Go(func() {
			_, err := messages(f)
			ended <- end{time.Since(began), err}
		})
		if i == 0 || both {
			l := newLines(func(*framed) {})
			l.add(f)
			context.AfterFunc(f.ctx, func() { l.remove(f) })
			t.Cleanup(l.close)
		}
	}
	t.Cleanup(func() { near.close(); far.close(); reading.Wait() })
	return near, far, ended
}

func TestAQuietStreamStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far, ended := looked(t, true)
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(ended) != 0 || near.ctx.Err() != nil || far.ctx.Err() != nil {
			t.Error("it has ended")
		}
	})
}

func TestASilentStreamEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, ended := looked(t, false)
		one, other := <-ended, <-ended
		if one.after < 1500*time.Millisecond || other.after > 2*time.Second {
			t.Errorf("it was found after %v and %v", one.after, other.after)
		}
		if !errors.Is(one.why, errSilent) && !errors.Is(other.why, errSilent) {
			t.Errorf("nobody says why: %v, %v", one.why, other.why)
		}
	})
}

// Who looks is there while there is something to look at, and again for the next.
func TestLinesAreLookedAtWhileThereAreAny(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLines(func(*framed) {})
		for range 3 {
			near, far := net.Pipe()
			f := newFramed(context.Background(), near, NewMetrics(nil))
			if !l.add(f) {
				t.Fatal("it was not taken")
			}
			time.Sleep(time.Second)
			f.close()
			l.remove(f)
			synctest.Wait()
			if l.looking {
				t.Error("somebody looks at nothing")
			}
			far.Close()
		}
		l.close()
		near, far := net.Pipe()
		if l.add(newFramed(context.Background(), near, NewMetrics(nil))) {
			t.Error("one came after the end")
		}
		near.Close()
		far.Close()
	})
}

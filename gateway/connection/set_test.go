package connection

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// owner notes when its connection was to end.
type owner struct {
	behind int64

	mu                 sync.Mutex
	expired, dismissed []time.Time
}

func (o *owner) Reading() (int, int64) { return 1, o.behind }
func (o *owner) Expire()               { o.note(&o.expired) }
func (o *owner) Dismiss()              { o.note(&o.dismissed) }

func (o *owner) note(at *[]time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	*at = append(*at, time.Now())
}

func (o *owner) ends() []time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.expired)
}

func running(t *testing.T, test func(t *testing.T, s *Set)) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		ctx, cancel := context.WithCancel(t.Context())
		var loop sync.WaitGroup
		loop.Go(func() { _ = s.Run(ctx) })
		test(t, s)
		cancel()
		loop.Wait()
	})
}

func TestAConnectionEndsWithItsTimeAndOnce(t *testing.T) {
	running(t, func(t *testing.T, s *Set) {
		began := time.Now()
		var never, soon, later, gone, moved owner
		s.Add(&never, "never", "sse", "a", "", time.Time{})
		time.Sleep(10 * time.Millisecond) // the loop waits for the whole second
		s.Add(&soon, "soon", "sse", "a", "", began.Add(300*time.Millisecond))
		s.Add(&later, "later", "sse", "a", "", began.Add(time.Minute+123*time.Millisecond))
		g := s.Add(&gone, "gone", "sse", "a", "", began.Add(time.Second))
		m := s.Add(&moved, "moved", "sse", "a", "", began.Add(time.Second))
		g.Leave()
		m.Identify("ann", began.Add(90*time.Second))
		time.Sleep(80 * time.Second)
		synctest.Wait()
		for _, c := range []struct {
			name string
			o    *owner
			at   time.Duration // 0: not yet
		}{{"never", &never, 0}, {"soon", &soon, 300 * time.Millisecond}, {"later", &later, time.Minute + 123*time.Millisecond}, {"gone", &gone, 0}, {"moved", &moved, 0}} {
			switch ends := c.o.ends(); {
			case c.at == 0 && len(ends) > 0, c.at > 0 && len(ends) != 1:
				t.Errorf("%s: ended %d times", c.name, len(ends))
			case c.at > 0:
				if late := ends[0].Sub(began) - c.at; late < 0 || late > sweepGap {
					t.Errorf("%s: %s late", c.name, late)
				}
			}
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if len(moved.ends()) != 1 {
			t.Error("moved has not ended")
		}
	})
}

func TestTheListHasRatesAndPrincipals(t *testing.T) {
	running(t, func(t *testing.T, s *Set) {
		a := s.Add(&owner{behind: 7}, "a", "websocket", "1.2.3.4:5", "ann", time.Time{})
		time.Sleep(time.Millisecond)
		b := s.Add(&owner{}, "b", "sse", "1.2.3.4:6", "", time.Time{})
		for range 300 {
			a.In.Add(1)
			b.Out.Add(10)
			time.Sleep(100 * time.Millisecond)
		}
		all := s.List(nil)
		if len(all) != 2 || all[0].ID != "a" || all[1].ID != "b" || all[0].Behind != 7 || all[0].Subscriptions != 1 {
			t.Fatalf("%+v", all)
		}
		if in, out := all[0].InRate, all[1].OutRate; in < 9 || in > 11 || out < 90 || out > 110 || all[0].OutRate != 0 {
			t.Errorf("in %.1f, out %.1f", in, out)
		}
		time.Sleep(30 * time.Second)
		ann := "ann"
		if only := s.List(&ann); len(only) != 1 || only[0].ID != "a" || only[0].InRate > 0.1 {
			t.Errorf("%+v", only)
		}
		b.Identify("ann", time.Time{})
		if n := len(s.List(&ann)); n != 2 {
			t.Errorf("%d of ann", n)
		}
	})
}

func TestDismissEndsTheOneThatWasAskedFor(t *testing.T) {
	running(t, func(t *testing.T, s *Set) {
		var x, y owner
		s.Add(&x, "x", "sse", "", "", time.Time{})
		c := s.Add(&y, "y", "sse", "", "", time.Time{})
		if !s.Dismiss("x") || s.Dismiss("z") {
			t.Error("the wrong ones are known")
		}
		c.Leave()
		if s.Dismiss("y") {
			t.Error("y has left")
		}
		if len(x.dismissed) != 1 || len(y.dismissed) != 0 {
			t.Errorf("%v %v", x.dismissed, y.dismissed)
		}
	})
}

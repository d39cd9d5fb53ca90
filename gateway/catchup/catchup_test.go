package catchup_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"tidewire/gateway/catchup"
	"tidewire/internal/cluster"
	"tidewire/internal/feed"
	"tidewire/internal/testkit/activity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// town is the coordinators, and this node's feed, which hears of a change some time after
// it was decided.
type town struct {
	*feed.Feed
	lag, takes time.Duration // of the feed; of a call, which looks when half of it is over

	mu      sync.Mutex
	decided uint64
	calls   int
	err     error // of calls
	mute    bool  // nothing comes back
}

func newTown() *town {
	w := &town{Feed: feed.New(), lag: 70 * time.Millisecond, takes: 2 * time.Millisecond, decided: 1}
	w.Publish(&cluster.Snapshot{Index: 1})
	return w
}

// decide makes a change, and gives its index.
func (w *town) decide() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.decided++
	index := w.decided
	time.AfterFunc(w.lag, func() { w.Publish(&cluster.Snapshot{Index: index}) })
	return index
}

func (w *town) Decided(ctx context.Context) (uint64, error) {
	w.mu.Lock()
	w.calls++
	mute := w.mute
	w.mu.Unlock()
	if mute {
		<-ctx.Done()
		return 0, context.Cause(ctx)
	}
	time.Sleep(w.takes / 2)
	w.mu.Lock()
	index, err := w.decided, w.err
	w.mu.Unlock()
	time.Sleep(w.takes / 2)
	return index, err
}

func (w *town) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *town) called() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls
}

// took is how long a catch-up takes.
func took(t *testing.T, c *catchup.CatchUp) time.Duration {
	t.Helper()
	began := time.Now()
	c.CatchUp(t.Context())
	return time.Since(began)
}

func start(t *testing.T, w *town) *catchup.CatchUp {
	c := catchup.New(w, nil)
	activity.Start(t, c.Run)
	return c
}

func TestWhatWasAnsweredElsewhereIsThereAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown()
		c := start(t, w)
		index := w.decide()
		if d := took(t, c); d != w.lag || c.Snapshot().Index != index {
			t.Errorf("index %d after %s, want %d after %s", c.Snapshot().Index, d, index, w.lag)
		}
		if d := took(t, c); d != w.takes { // there is nothing new
			t.Errorf("after %s", d)
		}
	})
}

// Changes are made all the time, and looked for by many: each finds its own, and the
// leading coordinator is asked by one at a time.
func TestManyWhoLookAtOnceAskOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown()
		c := start(t, w)
		var looking sync.WaitGroup
		for i := range 1000 {
			looking.Go(func() {
				time.Sleep(time.Duration(i) * 317 * time.Microsecond)
				if index := w.decide(); index > 0 {
					c.CatchUp(t.Context())
					if c.Snapshot().Index < index {
						t.Errorf("%d: the snapshot is of index %d, and %d was answered before", i, c.Snapshot().Index, index)
					}
				}
			})
		}
		looking.Wait()
		if n := w.called(); n > 10 { // some 400 ms, and each waits for the feed
			t.Errorf("%d calls", n)
		}
	})
}

func TestNamesThatAreMadeUpAskSoOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown()
		c := start(t, w)
		const span = 10 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), span)
		defer cancel()
		var flood sync.WaitGroup
		for range 8 {
			flood.Go(func() {
				for ctx.Err() == nil {
					c.CatchUp(ctx)
				}
			})
		}
		time.Sleep(span / 2)
		index := w.decide()
		if d := took(t, c); c.Snapshot().Index != index || d > w.lag+50*time.Millisecond {
			t.Errorf("beside them: index %d after %s", c.Snapshot().Index, d)
		}
		flood.Wait()
		if n := w.called(); n > 530 {
			t.Errorf("%d calls in %s", n, span)
		}
	})
}

// Where nobody answers a first one waits, and for a while no other does.
func TestWithoutACoordinatorThereIsAnAnswerAllTheSame(t *testing.T) {
	for name, fail := range map[string]func(w *town){
		"refused":                     func(w *town) { w.err = errors.New("no leader") },
		"silent":                      func(w *town) { w.mute = true },
		"the feed hears of no change": func(w *town) { w.decided = 99 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTown()
				c := start(t, w)
				w.set(func() { fail(w) })
				var waiting sync.WaitGroup
				began := time.Now()
				for range 20 {
					waiting.Go(func() { c.CatchUp(t.Context()) })
					time.Sleep(50 * time.Millisecond)
				}
				waiting.Wait()
				if d := time.Since(began); d != 2*time.Second {
					t.Errorf("the first ones wait %s", d)
				}
				if d := took(t, c); d != 0 {
					t.Errorf("one more waits %s", d)
				}
				calls := w.called()
				time.Sleep(1100 * time.Millisecond)
				w.set(func() { w.err, w.mute, w.decided = nil, false, 1 })
				index := w.decide()
				if took(t, c); c.Snapshot().Index != index || w.called() != calls+1 {
					t.Errorf("index %d, want %d", c.Snapshot().Index, index)
				}
			})
		})
	}
}

// A leader that died is followed by another: who looks for something then waits for that.
func TestASuccessorIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown()
		c := start(t, w)
		w.set(func() { w.mute = true })
		index := w.decide()
		time.AfterFunc(500*time.Millisecond, func() { w.set(func() { w.mute = false }) })
		if d := took(t, c); c.Snapshot().Index != index || d > 700*time.Millisecond {
			t.Errorf("index %d after %s", c.Snapshot().Index, d)
		}
	})
}

func TestWhoLeavesWaitsNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown()
		c := start(t, w)
		index := w.decide()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		var other sync.WaitGroup
		other.Go(func() {
			time.Sleep(time.Millisecond / 2)
			c.CatchUp(t.Context())
			if c.Snapshot().Index != index {
				t.Error("who came later was left behind")
			}
		})
		began := time.Now()
		if c.CatchUp(ctx); time.Since(began) != 10*time.Millisecond {
			t.Errorf("after %s", time.Since(began))
		}
		other.Wait()
	})
}

func TestTheEndOfRunEndsWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown()
		w.mute = true
		c := catchup.New(w, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = c.Run(ctx) }) // it has no error
		time.AfterFunc(10*time.Millisecond, cancel)
		if d := took(t, c); d != 10*time.Millisecond {
			t.Errorf("after %s", d)
		}
		running.Wait()
		if d := took(t, c); d != 0 {
			t.Errorf("one that came too late waited %s", d)
		}
	})
}

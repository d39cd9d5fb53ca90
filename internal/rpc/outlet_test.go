package rpc

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// line is a stream that notes its messages, and waits where it is told to.
type line struct {
	mu       sync.Mutex
	messages [][]int
	hold     chan struct{}
	fail     bool
}

func always() bool { return true }

func everything(v []int) int { return len(v) }

func (l *line) send(v []int) error {
	l.mu.Lock()
	hold := l.hold
	l.mu.Unlock()
	if hold != nil {
		<-hold
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail {
		return errors.New("broken")
	}
	l.messages = append(l.messages, slices.Clone(v))
	return nil
}

func put(o *outlet[int], v int) {
	o.mu.Lock()
	flush := o.putLocked(v)
	o.mu.Unlock()
	if flush {
		_ = o.flush()
	}
}

func TestALoneValueIsSentByWhoPutsIt(t *testing.T) {
	l := &line{}
	o := newOutlet(everything, l.send, always)
	put(o, 1) // nobody runs it
	put(o, 2)
	if len(l.messages) != 2 {
		t.Fatalf("%v were sent", l.messages)
	}
}

func TestWhatWaitsIsCombined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &line{hold: make(chan struct{})}
		o := newOutlet(func(v []int) int { return min(len(v), 3) }, l.send, always)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { o.run(ctx) })
		wg.Go(func() { put(o, 1) })
		synctest.Wait()
		for i := 2; i <= 6; i++ {
			put(o, i) // does not wait, though the line does
		}
		hold := l.hold
		l.mu.Lock()
		l.hold = nil
		l.mu.Unlock()
		close(hold)
		synctest.Wait()
		if want := [][]int{{1}, {2, 3, 4}, {5, 6}}; !slices.EqualFunc(l.messages, want, slices.Equal) {
			t.Errorf("%v were sent, want %v", l.messages, want)
		}
		cancel()
		wg.Wait()
	})
}

// A put must never wait for a stream that may be full.
func TestAFullStreamIsLeftToTheRunner(t *testing.T) {
	l := &line{}
	calm := true
	o := newOutlet(everything, l.send, func() bool { return calm })
	put(o, 1)
	calm = false
	put(o, 2)
	if len(l.messages) != 1 {
		t.Fatalf("%v were sent, and the second could have waited", l.messages)
	}
	calm = true
	put(o, 3)
	if want := [][]int{{1}, {2, 3}}; !slices.EqualFunc(l.messages, want, slices.Equal) {
		t.Errorf("%v were sent, want %v", l.messages, want)
	}
}

func TestAnOutletThatIsNotOpenKeepsWhatItGets(t *testing.T) {
	for _, failed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			l := &line{}
			o := newOutlet(everything, l.send, always)
			o.busy = true
			put(o, 1)
			put(o, 2)
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() { o.run(ctx) })
			o.open(failed)
			synctest.Wait()
			rest := o.end()
			if failed && (len(l.messages) != 0 || len(rest) != 2) || !failed && (len(l.messages) != 1 || len(rest) != 0) {
				t.Errorf("failed %v: %v sent, %v left", failed, l.messages, rest)
			}
			cancel()
			wg.Wait()
		})
	}
}

func TestEndWaitsForTheSendUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &line{hold: make(chan struct{})}
		o := newOutlet(everything, l.send, always)
		var wg sync.WaitGroup
		wg.Go(func() { put(o, 1) })
		synctest.Wait()
		put(o, 2)
		var rest []int
		ended := false
		wg.Go(func() { rest = o.end(); ended = true })
		synctest.Wait()
		if ended {
			t.Error("ended while a send was under way")
		}
		close(l.hold)
		wg.Wait()
		if !slices.Equal(rest, []int{2}) || len(l.messages) != 1 {
			t.Errorf("%v left, %v sent", rest, l.messages)
		}
	})
}

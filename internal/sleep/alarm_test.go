package sleep_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/internal/sleep"
)

// list is times to look at, as an alarm's owner has them.
type list struct {
	mu    sync.Mutex
	times []time.Time
	looks int
	late  time.Duration // of any, at the most
	done  int
}

func (l *list) look(now time.Time) (next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looks++
	l.times = slices.DeleteFunc(l.times, func(at time.Time) bool {
		if at.After(now) {
			return false
		}
		l.late = max(l.late, now.Sub(at))
		l.done++
		return true
	})
	if len(l.times) > 0 {
		next = slices.MinFunc(l.times, time.Time.Compare)
	}
	return next
}

func (l *list) add(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.times = append(l.times, at)
}

func (l *list) remove() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.times = nil
}

// ring starts an alarm for a list.
func ring(t *testing.T, l *list) *sleep.Alarm {
	a := sleep.NewAlarm()
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { a.Run(ctx, l.look) })
	t.Cleanup(running.Wait)
	t.Cleanup(stop)
	return a
}

func TestAnAlarmMissesNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l list
		a := ring(t, &l)
		for i := range 1000 {
			at := time.Now().Add(time.Duration(i*7919%100) * time.Millisecond)
			l.add(at)
			a.Set(at)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.late > 0 || l.done != 1000 {
			t.Errorf("%d of 1000 times came, up to %v late", l.done, l.late)
		}
	})
}

// A thing that is done before its time, again and again, is what most times are of.
func TestALaterTimeWakesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l list
		a := ring(t, &l)
		for range 10_000 {
			at := time.Now().Add(time.Second)
			l.add(at)
			a.Set(at)
			time.Sleep(time.Millisecond)
			l.remove()
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.looks > 20 {
			t.Errorf("it looked %d times in 10 s for what was never due", l.looks)
		}
	})
}

// The look that a time is set in has perhaps gone past it.
func TestATimeThatIsSetDuringALookIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l list
		a := sleep.NewAlarm()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go a.Run(ctx, func(now time.Time) time.Time {
			next := l.look(now)
			if next.IsZero() {
				l.add(now.Add(time.Second))
				a.Set(now.Add(time.Second))
			}
			return next
		})
		time.Sleep(10*time.Second + time.Millisecond)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.done != 10 || l.late > 0 {
			t.Errorf("%d of 10 times were seen, up to %v late", l.done, l.late)
		}
	})
}

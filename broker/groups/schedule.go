package groups

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// schedule holds times of many things, behind one timer.
type schedule[T any] struct {
	wake chan struct{} // has one entry when the first time came nearer

	mu    sync.Mutex
	queue dues[T]
}

// due is when something is to happen to a thing.
type due[T any] struct {
	of    T
	at    time.Time // zero: never
	place int       // in the queue; meaningless where at is zero
}

func newSchedule[T any]() schedule[T] { return schedule[T]{wake: make(chan struct{}, 1)} }

// set moves a time; zero takes it away.
func (s *schedule[T]) set(d *due[T], at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.at.Equal(at) {
		return
	}
	was := d.at
	d.at = at
	switch {
	case at.IsZero():
		heap.Remove(&s.queue, d.place)
	case was.IsZero():
		heap.Push(&s.queue, d)
	default:
		heap.Fix(&s.queue, d.place)
	}
	if len(s.queue) > 0 && s.queue[0] == d {
		nudge(s.wake)
	}
}

// take gives those whose time has come, and says how long it is to the next one.
func (s *schedule[T]) take(now time.Time) (some []T, next time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) > 0 && !s.queue[0].at.After(now) {
		d := heap.Pop(&s.queue).(*due[T])
		d.at = time.Time{}
		some = append(some, d.of)
	}
	if len(s.queue) == 0 {
		return some, time.Hour
	}
	return some, s.queue[0].at.Sub(now)
}

// run calls do for those whose time has come, until ctx ends.
func (s *schedule[T]) run(ctx context.Context, do func(T)) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		some, next := s.take(time.Now())
		for _, of := range some {
			do(of)
		}
		if len(some) > 0 && ctx.Err() == nil {
			continue // they may have new times
		}
		timer.Reset(next)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		case <-s.wake:
		}
	}
}

// dues is a heap of them.
type dues[T any] []*due[T]

func (d dues[T]) Len() int           { return len(d) }
func (d dues[T]) Less(i, j int) bool { return d[i].at.Before(d[j].at) }
func (d dues[T]) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].place, d[j].place = i, j
}

func (d *dues[T]) Push(x any) {
	e := x.(*due[T])
	e.place = len(*d)
	*d = append(*d, e)
}

func (d *dues[T]) Pop() any {
	last := len(*d) - 1
	e := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	return e
}

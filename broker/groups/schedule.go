package groups

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"tidewire/internal/sleep"
)

// schedule holds times of many things, behind one timer.
type schedule[T any] struct {
	alarm *sleep.Alarm

	mu    sync.Mutex
	queue dues[T]
}

// due is when something is to happen to a thing.
type due[T any] struct {
	of    T
	at    time.Time // zero: never
	place int       // in the queue; meaningless where at is zero
}

func newSchedule[T any]() schedule[T] { return schedule[T]{alarm: sleep.NewAlarm()} }

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
		s.alarm.Set(at)
	}
}

// take gives those whose time has come, and says when the next one's does.
func (s *schedule[T]) take(now time.Time) (some []T, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) > 0 && !s.queue[0].at.After(now) {
		d := heap.Pop(&s.queue).(*due[T])
		d.at = time.Time{}
		some = append(some, d.of)
	}
	if len(s.queue) == 0 {
		return some, time.Time{}
	}
	return some, s.queue[0].at
}

// run calls do for those whose time has come, until ctx ends.
func (s *schedule[T]) run(ctx context.Context, do func(T)) error {
	s.alarm.Run(ctx, func(now time.Time) time.Time {
		some, next := s.take(now)
		for _, of := range some {
			do(of)
		}
		return next // where they have new times, these were set
	})
	return context.Cause(ctx)
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

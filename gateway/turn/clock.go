package turn

import (
	"container/heap"
	"sync"
	"time"
)

// clock schedules slots at their time: for a ping, a cursor, a goodbye. One
// timer serves all of a worker's. An entry may fire too early, never too late:
// the turn looks what is due and sets the clock again.
type clock struct {
	wake func()

	mu      sync.Mutex
	entries alarms
	timer   *time.Timer
	timerAt time.Time // when timer fires
	last    []*Slot
}

// alarms is a heap of slots by time.
type alarms []*Slot

func (a alarms) Len() int           { return len(a) }
func (a alarms) Less(i, j int) bool { return a[i].alarm.at.Before(a[j].alarm.at) }

func (a alarms) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].alarm.place, a[j].alarm.place = i+1, j+1
}

func (a *alarms) Push(x any) {
	s := x.(*Slot)
	*a = append(*a, s)
	s.alarm.place = len(*a)
}

func (a *alarms) Pop() any {
	old := *a
	s := old[len(old)-1]
	old[len(old)-1] = nil
	*a = old[:len(old)-1]
	s.alarm.place = 0
	return s
}

// alarm is a slot's entry; guarded by its clock.
type alarm struct {
	at    time.Time
	place int // in the heap, from 1 on; 0: none
}

// set sees to it that the slot is scheduled at a time or before.
func (c *clock) set(s *Slot, at time.Time) {
	c.mu.Lock()
	switch {
	case s.alarm.place == 0:
		s.alarm.at = at
		heap.Push(&c.entries, s)
	case at.Before(s.alarm.at):
		s.alarm.at = at
		heap.Fix(&c.entries, s.alarm.place-1)
	default:
		c.mu.Unlock()
		return
	}
	first := c.entries[0] == s
	c.mu.Unlock()
	if first {
		c.wake()
	}
}

// drop takes a slot off the clock.
func (c *clock) drop(s *Slot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.alarm.place > 0 {
		heap.Remove(&c.entries, s.alarm.place-1)
	}
}

// fire schedules every slot whose time has come.
func (c *clock) fire() {
	c.mu.Lock()
	if len(c.entries) == 0 {
		c.mu.Unlock()
		return
	}
	now := time.Now()
	for len(c.entries) > 0 && !c.entries[0].alarm.at.After(now) {
		c.last = append(c.last, heap.Pop(&c.entries).(*Slot))
	}
	c.timerAt = time.Time{}
	c.mu.Unlock()
	for i, s := range c.last { // only the worker calls fire
		s.Schedule()
		c.last[i] = nil
	}
	c.last = c.last[:0]
}

// next fires when the first entry is due; nil: there is none.
func (c *clock) next() <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.entries) == 0 {
		return nil
	}
	at := c.entries[0].alarm.at
	switch {
	case c.timer == nil:
		c.timer = time.NewTimer(time.Until(at))
	case !at.Equal(c.timerAt):
		c.timer.Reset(time.Until(at))
	}
	c.timerAt = at
	return c.timer.C
}

func (c *clock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
	}
}

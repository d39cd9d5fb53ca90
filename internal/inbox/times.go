package inbox

import (
	"container/heap"
	"time"
)

// due is a time of a caller or of an entry.
type due struct {
	at     time.Time
	place  int // in the queue, from 1 on; 0: it is not there
	caller *Caller
	entry  *entry
}

// times is a queue of them, the first one in front.
type times struct{ queue dues }

func (t *times) next() (time.Time, bool) {
	if len(t.queue) == 0 {
		return time.Time{}, false
	}
	return t.queue[0].at, true
}

// set puts a time into the queue, or moves it there.
func (t *times) set(d *due, at time.Time) {
	d.at = at
	if d.place == 0 {
		heap.Push(&t.queue, d)
	} else {
		heap.Fix(&t.queue, d.place-1)
	}
}

func (t *times) drop(d *due) {
	if d.place > 0 {
		heap.Remove(&t.queue, d.place-1)
	}
}

type dues []*due

func (d dues) Len() int           { return len(d) }
func (d dues) Less(i, j int) bool { return d[i].at.Before(d[j].at) }

func (d dues) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].place, d[j].place = i+1, j+1
}

func (d *dues) Push(x any) {
	e := x.(*due)
	*d = append(*d, e)
	e.place = len(*d)
}

func (d *dues) Pop() any {
	last := len(*d) - 1
	e := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	e.place = 0
	return e
}

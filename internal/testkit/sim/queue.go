package sim

import "time"

// events are what is to come, by time and then in the order in which they were queued.
// What is sorted holds no pointers: most of the work of a run is to queue and to take
// events, and the collector has no part in that.
type events struct {
	heap []turn
	held []event
	free []int // places in held
}

// turn is when an event has its turn.
type turn struct {
	at    time.Duration
	n     uint64
	place int // in held
}

func (t *turn) before(o *turn) bool { return t.at < o.at || t.at == o.at && t.n < o.n }

func (q *events) len() int { return len(q.heap) }

// next is when the first event has its turn.
func (q *events) next() time.Duration { return q.heap[0].at }

func (q *events) push(e event) {
	var place int
	if n := len(q.free); n > 0 {
		place, q.free = q.free[n-1], q.free[:n-1]
		q.held[place] = e
	} else {
		place = len(q.held)
		q.held = append(q.held, e)
	}
	t := turn{e.at, e.n, place}
	i := len(q.heap)
	q.heap = append(q.heap, t)
	for i > 0 {
		up := (i - 1) / 2
		if !t.before(&q.heap[up]) {
			break
		}
		q.heap[i] = q.heap[up]
		i = up
	}
	q.heap[i] = t
}

func (q *events) pop() event {
	place := q.heap[0].place
	n := len(q.heap) - 1
	t := q.heap[n]
	q.heap = q.heap[:n]
	for i := 0; n > 0; {
		down := 2*i + 1
		if down+1 < n && q.heap[down+1].before(&q.heap[down]) {
			down++
		}
		if down >= n || !q.heap[down].before(&t) {
			q.heap[i] = t
			break
		}
		q.heap[i] = q.heap[down]
		i = down
	}
	e := q.held[place]
	q.held[place] = event{}
	q.free = append(q.free, place)
	return e
}

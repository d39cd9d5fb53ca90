package rpc

import (
	"context"
	"sync"
)

// calmBytes is how much may be on its way to another node, and not known to have
// arrived, so that a send surely does not have to wait: well below what the kernel takes
// in for one that does not read. There a frame takes more than its bytes: frameCost. And
// where more is on its way than that, what comes is worth joining.
const (
	calmBytes = 32 << 10
	frameCost = 1 << 10
)

// outlet sends values over a stream, combining what waits into one message.
//
// Whoever puts a value sends it himself, together with what others put meanwhile,
// so that a lone value wakes no other goroutine on its way out. Only when much is on
// its way, so that a send could wait, is it left to run: a put never waits.
type outlet[T any] struct {
	cut  func([]T) int   // how many of the first go into one message; at least one
	send func([]T) error // hands them to the stream as one message
	calm func() bool     // a send of all that is queued would not wait; called under mu

	mu    sync.Mutex
	queue []T // bounded by who puts
	spare []T // what is being sent, and the room of the next
	busy  bool
	ended bool
	idle  chan struct{} // closed when not busy; nil: nobody waits

	wake chan struct{} // has one entry when run is to look
}

func newOutlet[T any](cut func([]T) int, send func([]T) error, calm func() bool) *outlet[T] {
	return &outlet[T]{cut: cut, send: send, calm: calm, wake: make(chan struct{}, 1)}
}

// putLocked queues a value. If it says so the caller is to call flush, once it has
// given the lock back.
func (o *outlet[T]) putLocked(v T) (flush bool) {
	o.queue = append(o.queue, v)
	if o.busy {
		return false // who is sending sees to it
	}
	if !o.calm() {
		o.signal()
		return false
	}
	o.busy = true
	return true
}

func (o *outlet[T]) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// flush sends one message. Only who has set busy calls it.
func (o *outlet[T]) flush() error {
	o.mu.Lock()
	if o.ended || len(o.queue) == 0 {
		o.restLocked()
		o.mu.Unlock()
		return nil
	}
	n := o.cut(o.queue)
	batch := append(o.spare[:0], o.queue[:n]...)
	rest := copy(o.queue, o.queue[n:])
	clear(o.queue[rest:])
	o.queue = o.queue[:rest]
	o.mu.Unlock()

	err := o.send(batch)

	o.mu.Lock()
	clear(batch)
	o.spare = batch
	o.restLocked()
	o.mu.Unlock()
	return err
}

func (o *outlet[T]) restLocked() {
	o.busy = false
	if o.idle != nil {
		close(o.idle)
		o.idle = nil
	}
	if len(o.queue) > 0 {
		o.signal()
	}
}

// run sends what could have to wait, until ctx ends or a send fails.
func (o *outlet[T]) run(ctx context.Context) {
	for {
		select {
		case <-o.wake:
		case <-ctx.Done():
			return
		}
		for o.begin() {
			if o.flush() != nil {
				return // who receives learns why
			}
		}
	}
}

func (o *outlet[T]) begin() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.busy || o.ended || len(o.queue) == 0 {
		return false
	}
	o.busy = true
	return true
}

// open lets whoever puts something send it, or if it failed takes no more. An outlet
// that is not open yet is one that is busy.
func (o *outlet[T]) open(failed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = failed
	o.restLocked()
}

// end takes no more, waits for a send under way, and returns what was not sent.
func (o *outlet[T]) end() []T {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	for o.busy {
		if o.idle == nil {
			o.idle = make(chan struct{})
		}
		idle := o.idle
		o.mu.Unlock()
		<-idle
		o.mu.Lock()
	}
	rest := o.queue
	o.queue = nil
	return rest
}

// Package queue lets those wait who want more bytes than are free, in the order
// they came: a large one is not overtaken for ever by small ones. A semaphore
// would do where what is free is a fixed number; here its owner decides.
package queue

import (
	"container/list"
	"context"
	"sync"
)

// Queue is who waits for bytes, oldest first. Its owner's mutex guards it.
type Queue struct {
	mu      sync.Locker
	admit   func(n int64) bool
	waiters list.List
}

// waiter is one who waits. ready is closed once it has its bytes.
type waiter struct {
	bytes int64
	ready chan struct{}
}

// New makes a queue of its owner, whose admit takes n bytes, or says that there
// is no room. It is called with mu held.
func New(mu sync.Locker, admit func(n int64) bool) *Queue {
	return &Queue{mu: mu, admit: admit}
}

// Empty reports that nobody waits. It needs the mutex.
func (q *Queue) Empty() bool { return q.waiters.Len() == 0 }

// Admit lets in whom there is room for now. It needs the mutex.
func (q *Queue) Admit() {
	for front := q.waiters.Front(); front != nil; front = q.waiters.Front() {
		w := front.Value.(*waiter)
		if !q.admit(w.bytes) {
			return
		}
		close(w.ready)
		q.waiters.Remove(front)
	}
}

// Wait returns once n bytes were admitted, or with the cause of ctx's end: then
// they were not.
func (q *Queue) Wait(ctx context.Context, n int64) error {
	w := &waiter{n, make(chan struct{})}
	q.mu.Lock()
	place := q.waiters.PushBack(w)
	q.Admit()
	q.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-w.ready: // just now
		return nil
	default:
	}
	q.waiters.Remove(place)
	q.Admit() // a smaller one behind may fit
	return context.Cause(ctx)
}

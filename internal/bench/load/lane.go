package load

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"tidewire/internal/bench/sock"
)

// Dialect is how a connection says publishes and hears what became of them. It is one
// connection's, and is called by one goroutine at a time.
type Dialect interface {
	// Open connects.
	Open(t Target) (*sock.Conn, error)
	// Append writes the publish of a number in a slot, which is below the window.
	Append(dst []byte, slot int, n int64) []byte
	// Read finds answers and tells of each.
	Read(b []byte, to Answers) (used int, err error)
}

// Answers hears what became of publishes.
type Answers interface {
	// Answered says of a slot that so many records were kept and so many refused, and
	// why. An error of it ends the connection.
	Answered(slot, kept, refused int, why error) error
}

// lane is one publishing connection. Its numbers are first, first+stride, …;
// what is in flight has a slot, so its answer is found without a map.
type lane struct {
	crew  *crew
	clock *clock
	rec   *recorder
	d     Dialect
	due   *atomic.Int64 // numbers below it may leave

	// mu is held over writes too, which never wait: loops and the pacer fill the
	// same buffer.
	mu           sync.Mutex
	conn         *sock.Conn
	next, stride int64
	free         []int   // slots
	sent         []int64 // when a slot's publish left; -1: free
	out          []byte
	now          int64 // of the read under way
	refusal      error // the first one
	strict       bool  // a refusal ends the load
}

func newLane(c *crew, k *clock, rec *recorder, d Dialect, due *atomic.Int64, window int, first, stride int64) *lane {
	l := &lane{crew: c, clock: k, rec: rec, d: d, due: due, next: first, stride: stride, free: make([]int, window), sent: make([]int64, window)}
	for i := range window {
		l.free[i], l.sent[i] = window-1-i, -1
	}
	return l
}

// open connects and gives the connection to a loop.
func (l *lane) open(t Target, loop *sock.Loop) error {
	conn, err := l.d.Open(t)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.conn = conn
	l.mu.Unlock()
	if err := loop.Add(conn, l); err != nil {
		conn.Cut()
		return err
	}
	return nil
}

// pump sends what may be sent by now.
func (l *lane) pump(now int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pumpLocked(now)
}

func (l *lane) pumpLocked(now int64) error {
	for len(l.free) > 0 && l.next < l.due.Load() {
		slot := l.free[len(l.free)-1]
		l.free = l.free[:len(l.free)-1]
		at := l.clock.leave(l.next, now)
		if l.clock.open() {
			l.rec.mu.Lock()
			l.rec.late.Record(now - at)
			l.rec.mu.Unlock()
		}
		l.sent[slot] = at
		l.out = l.d.Append(l.out, slot, l.next)
		l.next += l.stride
	}
	if len(l.out) == 0 {
		return nil
	}
	err := l.conn.Write(l.out)
	l.out = l.out[:0]
	return err
}

// Receive takes answers and sends what they make room for, in one write.
func (l *lane) Receive(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = l.clock.now()
	l.rec.mu.Lock()
	used, err := l.d.Read(b, l)
	l.rec.mu.Unlock()
	if err != nil {
		return used, err
	}
	return used, l.pumpLocked(l.now)
}

// Answered notes what became of a slot's publish. Receive holds both locks.
func (l *lane) Answered(slot int, kept, refused int, why error) error {
	if slot < 0 || slot >= len(l.sent) || l.sent[slot] < 0 {
		return errors.New("the server answered a publish that is not under way")
	}
	if refused > 0 && l.refusal == nil {
		l.refusal = why
	}
	if refused > 0 && l.strict {
		return why
	}
	l.rec.messages += int64(kept)
	l.rec.refused += int64(refused)
	l.rec.latency.Record(l.now - l.sent[slot])
	l.rec.moved.Add(1)
	l.sent[slot] = -1
	l.free = append(l.free, slot)
	return nil
}

// Ended ends the load: a publisher that is gone would leave figures of another.
func (l *lane) Ended(err error) {
	if errors.Is(err, io.EOF) {
		err = errors.New("the server closed the connection of a publisher")
	}
	l.crew.fail(fmt.Errorf("a publisher: %w", err))
}

// overdue is how many publishes in flight were due more than a second ago.
func (l *lane) overdue(now int64) (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, at := range l.sent {
		if at >= 0 && now-at > int64(time.Second) {
			n++
		}
	}
	return n
}

// state is how much is in flight, what comes next, and why the first refused
// record was.
func (l *lane) state() (inFlight int, next int64, refusal error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.sent) - len(l.free), l.next, l.refusal
}

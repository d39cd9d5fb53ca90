package httpapi

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// Patient makes the connections of a listener bear with slow clients and end
// with those that take nothing: a write goes on for as long as its bytes move,
// however slowly, and fails once none has moved for writeTimeout.
func Patient(l net.Listener) net.Listener { return patientListener{l} }

type patientListener struct{ net.Listener }

func (l patientListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &patientConn{Conn: conn}, nil
}

// patientConn has no ReadFrom on purpose: everything passes through Write.
//
// Deadlines cost more than a small request does otherwise, and most of those that
// net/http and the sender of a body set are taken away again before anybody
// waits. So they are told to the socket when there is a call that they are for.
type patientConn struct {
	net.Conn

	mu    sync.Mutex
	read  deadline
	write deadline
}

// deadline of one direction, as it was set and as the socket has it.
type deadline struct {
	set, told time.Time
	calls     int // under way
}

// writeSteps is how many times per writeTimeout a write looks whether bytes
// move. A socket wakes a writer only once much of its buffer is free; who tries
// again finds the little that there is.
const (
	writeSteps = 4
	writeStep  = writeTimeout / writeSteps
)

// Read counts the deadline that was set.
func (c *patientConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	c.read.calls++
	err := c.tellLocked(&c.read, c.read.set, c.Conn.SetReadDeadline)
	c.mu.Unlock()
	n := 0
	if err == nil {
		n, err = c.Conn.Read(p)
	}
	c.mu.Lock()
	c.read.calls--
	c.mu.Unlock()
	return n, err
}

// Write returns when all is written, at the deadline that was set, or where
// there is none once no byte has moved for writeTimeout.
func (c *patientConn) Write(p []byte) (total int, err error) {
	last := time.Now()
	if err := c.arm(last, 1); err != nil {
		return 0, err
	}
	defer c.disarm()
	for {
		n, err := c.Conn.Write(p[total:])
		total += n
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return total, err
		}
		now := time.Now()
		if n > 0 {
			last = now
		}
		if until := c.until(); until.IsZero() && now.Sub(last) >= writeTimeout || !until.IsZero() && !now.Before(until) {
			return total, err
		}
		if err := c.arm(now, 0); err != nil {
			return total, err
		}
	}
}

// arm sees to it that a write looks around in a step from now, or two where the
// socket has such a deadline already, or when somebody wants it to end.
func (c *patientConn) arm(now time.Time, calls int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := &c.write
	w.calls += calls
	at := now.Add(writeStep)
	switch {
	case !w.set.IsZero():
		if w.set.Before(at) {
			at = w.set
		}
	case calls > 0 && !w.told.Before(at) && !w.told.After(at.Add(writeStep)):
		return nil // from a write before
	case calls > 0:
		at = at.Add(writeStep)
	}
	return c.tellLocked(w, at, c.Conn.SetWriteDeadline)
}

func (c *patientConn) disarm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.write.calls--
}

func (c *patientConn) until() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.write.set
}

func (c *patientConn) tellLocked(d *deadline, at time.Time, tell func(time.Time) error) error {
	if d.told.Equal(at) {
		return nil
	}
	d.told = at
	return tell(at)
}

// SetReadDeadline counts for a read that is under way too.
func (c *patientConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.read.set = t; c.read.calls == 0 {
		return nil
	}
	return c.tellLocked(&c.read, t, c.Conn.SetReadDeadline)
}

// SetWriteDeadline counts for a write that is under way too.
func (c *patientConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.write.set = t; c.write.calls == 0 {
		return nil
	}
	if t.IsZero() {
		t = time.Now().Add(writeStep) // it goes on, and looks around
	}
	return c.tellLocked(&c.write, t, c.Conn.SetWriteDeadline)
}

// SetDeadline is SetReadDeadline and SetWriteDeadline.
func (c *patientConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// CloseWrite is what net/http looks for before it leaves a client that still
// sends.
func (c *patientConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Hijacked is the socket for somebody who has hijacked the connection and has
// patience of its own.
func (c *patientConn) Hijacked() net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.tellLocked(&c.read, c.read.set, c.Conn.SetReadDeadline) // a closed one says so to whoever uses it
	_ = c.tellLocked(&c.write, c.write.set, c.Conn.SetWriteDeadline)
	return c.Conn
}

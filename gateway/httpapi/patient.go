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
type patientConn struct {
	net.Conn

	mu    sync.Mutex
	until time.Time // a deadline that somebody has set; zero: none
}

// writeSteps is how many times per writeTimeout a write looks whether bytes
// move. A socket wakes a writer only once much of its buffer is free; who tries
// again finds the little that there is.
const writeSteps = 4

// Write returns when all is written, at the deadline that was set, or where
// there is none once no byte has moved for writeTimeout.
func (c *patientConn) Write(p []byte) (total int, err error) {
	for last := time.Now(); ; {
		if err := c.arm(); err != nil {
			return total, err
		}
		n, err := c.Conn.Write(p[total:])
		total += n
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return total, err
		}
		now := time.Now()
		if n > 0 {
			last = now
		}
		if until := c.deadline(); until.IsZero() && now.Sub(last) >= writeTimeout || !until.IsZero() && !now.Before(until) {
			return total, err
		}
	}
}

func (c *patientConn) arm() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := time.Now().Add(writeTimeout / writeSteps)
	if !c.until.IsZero() && c.until.Before(at) {
		at = c.until
	}
	return c.Conn.SetWriteDeadline(at)
}

func (c *patientConn) deadline() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.until
}

// SetWriteDeadline counts for a write that is under way too.
func (c *patientConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = t
	return c.Conn.SetWriteDeadline(t)
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
func (c *patientConn) Hijacked() net.Conn { return c.Conn }

package turn

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Socket is the connection below a writer. It makes what is written at one time
// one piece that nothing else comes into, and it knows whether the client takes
// bytes at all.
type Socket struct {
	net.Conn
	raw  syscall.RawConn // nil: there is no descriptor to use without waiting
	slow time.Duration   // without a byte taken: stuck

	ticket atomic.Uint64 // with which its reader slept last

	mu     sync.Mutex // one write at a time; from a Try that did not write all until Rest
	owed   bool       // such a Try holds mu; the turn's
	closed bool       // the last bytes were written: nothing may follow them
	stuck  atomic.Bool
}

// sendBufferBytes bounds what the kernel takes before a write waits: by
// default it takes megabytes for a client that reads nothing.
const sendBufferBytes = 256 << 10

// Take makes a socket of a connection that an HTTP server has handed over. A
// client that takes no byte for as long as slow is stuck.
func (s *Socket) Take(conn net.Conn, slow time.Duration) {
	if own, ok := conn.(interface{ Hijacked() net.Conn }); ok { // the server's patience, around the socket
		conn = own.Hijacked()
	}
	s.Conn, s.slow = conn, slow
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(sendBufferBytes) // without it the connection is only less bounded
		s.raw, _ = tcp.SyscallConn()            // an error is that of a closed connection, which the next write meets too
	}
}

// Raw is the descriptor; nil where there is none to use.
func (s *Socket) Raw() syscall.RawConn { return s.raw }

// Stuck reports whether a write was given up because the client took nothing.
func (s *Socket) Stuck() bool { return s.stuck.Load() }

// Write writes all of p, for as long as the client goes on taking bytes.
func (s *Socket) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writeLocked(p)
}

// Last writes all of p. Writes that follow do nothing.
func (s *Socket) Last(p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.writeLocked(p)
	s.closed = true
	return err
}

func (s *Socket) writeLocked(p []byte) (total int, err error) {
	if s.closed {
		return len(p), nil
	}
	if s.stuck.Load() {
		return 0, os.ErrDeadlineExceeded
	}
	for wait := newPatience(s.slow, time.Now(), s.queued()); ; {
		if err := s.Conn.SetWriteDeadline(time.Now().Add(s.slow / steps)); err != nil {
			return total, err
		}
		n, err := s.Conn.Write(p[total:])
		total += n
		if err == nil {
			return total, nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return total, err
		}
		if wait.over(time.Now(), n, s.queued()) {
			s.stuck.Store(true)
			return total, err
		}
	}
}

// Try writes what the socket takes without waiting. Where that is not all, the
// rest goes to Rest, and nothing else is written before that.
func (s *Socket) Try(a *Attempt, p []byte) (n int, err error) {
	if s.raw == nil || !s.mu.TryLock() { // somebody is writing
		return 0, nil
	}
	defer func() {
		if s.owed = err == nil && n < len(p); !s.owed {
			s.mu.Unlock()
		}
	}()
	if s.closed {
		return len(p), nil
	}
	if s.stuck.Load() {
		return 0, os.ErrDeadlineExceeded
	}
	a.p = p
	err = s.raw.Control(a.write)
	a.p = nil
	if err != nil {
		return 0, err
	}
	return a.n, a.err
}

// Rest writes what Try has left, for as long as the client goes on taking bytes.
// After such a Try either it or Abandon has to be called.
func (s *Socket) Rest(p []byte) error {
	if !s.owed {
		s.mu.Lock()
	}
	s.owed = false
	defer s.mu.Unlock()
	_, err := s.writeLocked(p)
	return err
}

// Abandon is for who will not write what Try has left: the connection is of no
// use any more.
func (s *Socket) Abandon() {
	_ = s.Close()
	if s.owed {
		s.owed = false
		s.mu.Unlock()
	}
}

// Finish says that nothing follows what was written, and gives the client time
// to say so too; whoever waits for Gone hears of either.
func (s *Socket) Finish(linger time.Duration) {
	half, ok := s.Conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil || s.SetReadDeadline(time.Now().Add(linger)) != nil {
		_ = s.Close() // nothing else is left to do
	}
}

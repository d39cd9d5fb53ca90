package session

import (
	"bufio"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// socket is the connection below a WebSocket. It makes each frame one write
// that nothing else comes into, and it knows whether the client takes and sends
// bytes at all.
type socket struct {
	net.Conn
	raw  syscall.RawConn // nil: there is no descriptor to use without waiting
	slow time.Duration   // without a byte taken: stuck

	// The reader's.
	in    *bufio.Reader // the library's, over this socket
	buf   *[]byte       // of the pool, while ahead is in it
	ahead []byte        // read from the socket, and not taken yet
	fill  func(fd uintptr) bool
	small bool // the reader has a small stack, which is to stay small while it waits

	mu     sync.Mutex // one frame at a time
	closed bool       // the close frame was written: nothing may follow it
	heard  atomic.Bool
	stuck  atomic.Bool
}

// readAheadBytes is how much is read from a socket at once. The room for it is
// borrowed while there is something to read.
const readAheadBytes = 64 << 10

var readAhead = sync.Pool{New: func() any { b := make([]byte, readAheadBytes); return &b }}

// await returns when there is something to read, or the connection has ended.
// It waits with next to no stack, and no buffer: that is all that an idle
// connection's reader costs.
func (s *socket) await() {
	if s.raw == nil || s.pending() {
		return
	}
	_ = s.raw.Read(s.fill) // the read that follows meets the same error
	if s.small {
		s.small = false
		_ = s.raw.Read(s.fill)
	}
}

// pending reports whether something was read that the library has not taken.
func (s *socket) pending() bool { return len(s.ahead) > 0 || s.in.Buffered() > 0 }

// readable takes what the socket holds; false: nothing. On a small stack it
// only looks.
func (s *socket) readable(fd uintptr) bool {
	if s.small {
		return peek(fd)
	}
	return s.take(fd)
}

func (s *socket) take(fd uintptr) bool {
	b := readAhead.Get().(*[]byte)
	for {
		n, err := syscall.Read(int(fd), *b)
		switch {
		case err == syscall.EINTR:
			continue
		case n > 0:
			s.buf, s.ahead = b, (*b)[:n]
			s.heard.Store(true)
			return true
		}
		readAhead.Put(b)
		return err != syscall.EAGAIN
	}
}

// Read takes from what was read ahead, which it fills first: what the library
// asks for is small, and a frame may go on behind what came with its beginning.
func (s *socket) Read(p []byte) (int, error) {
	s.await()
	if len(s.ahead) > 0 {
		n := copy(p, s.ahead)
		s.skip(n)
		return n, nil
	}
	n, err := s.Conn.Read(p)
	if n > 0 {
		s.heard.Store(true) // the client lives
	}
	return n, err
}

// skip passes over what is read ahead.
func (s *socket) skip(n int) {
	if s.ahead = s.ahead[n:]; len(s.ahead) == 0 {
		readAhead.Put(s.buf)
		s.buf, s.ahead = nil, nil
	}
}

// Write writes a whole frame, for as long as the client goes on taking bytes.
func (s *socket) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writeLocked(p)
}

// say writes the close frame, after which nothing may follow.
func (s *socket) say(code int, reason string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := binary.BigEndian.AppendUint16([]byte{opClose, byte(2 + len(reason))}, uint16(code))
	_, err := s.writeLocked(append(b, reason...))
	s.closed = true
	return err
}

func (s *socket) writeLocked(p []byte) (total int, err error) {
	if s.closed {
		return len(p), nil // the library answers the client's close, which answers ours
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

// try writes what the socket takes without waiting. The rest has to be written
// before anything else.
func (s *socket) try(a *attempt, p []byte) (n int, err error) {
	if s.raw == nil || !s.mu.TryLock() { // the library is saying its close
		return 0, nil
	}
	defer s.mu.Unlock()
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

// keep takes over what the server has read of the client already, so that its
// buffer can go, and makes the library's.
func (s *socket) keep(r *bufio.Reader) {
	if b, err := r.Peek(r.Buffered()); err == nil && len(b) > 0 {
		s.buf = readAhead.Get().(*[]byte)
		s.ahead = (*s.buf)[:copy(*s.buf, b)] // the server reads less than this at once
	}
	s.in = bufio.NewReaderSize(s, 128)
}

// sendBufferBytes bounds what the kernel takes before a write waits: by
// default it takes megabytes for a client that reads nothing.
const sendBufferBytes = 256 << 10

// hijacker hands the WebSocket library our socket in place of the server's.
type hijacker struct {
	http.ResponseWriter
	slow   time.Duration
	socket *socket
}

// Hijack gives the library buffers that an idle connection can afford.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	if own, ok := conn.(interface{ Hijacked() net.Conn }); ok { // the server's patience, around the socket
		conn = own.Hijacked()
	}
	h.socket = &socket{Conn: conn, slow: h.slow}
	h.socket.fill = h.socket.readable
	h.socket.keep(rw.Reader)
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(sendBufferBytes) // without it the connection is only less bounded
		h.socket.raw, _ = tcp.SyscallConn()     // an error is that of a closed connection, which the next write meets too
	}
	// The library writes control frames alone; each fits the buffer and is one write.
	return h.socket, bufio.NewReadWriter(h.socket.in, bufio.NewWriterSize(h.socket, 128)), nil
}

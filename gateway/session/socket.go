package session

import (
	"bufio"
	"encoding/binary"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"tidewire/gateway/turn"
)

// socket is the connection below a WebSocket. It knows whether the client sends
// bytes at all, and reads them with next to no memory while there are none.
type socket struct {
	turn.Socket

	// The reader's.
	in    *bufio.Reader         // the library's, over this socket
	buf   *[]byte               // of the pool, while ahead is in it
	ahead []byte                // read from the socket, and not taken yet
	fill  func(fd uintptr) bool // take, made once

	heard atomic.Bool
}

// readAheadBytes is how much is read from a socket at once. The room for it is
// borrowed while there is something to read.
const readAheadBytes = 64 << 10

var readAhead = sync.Pool{New: func() any { b := make([]byte, readAheadBytes); return &b }}

// await returns when there is something to read, or the connection has ended.
// It waits without a buffer.
func (s *socket) await() {
	raw := s.Raw()
	if raw == nil || s.pending() {
		return
	}
	_ = raw.Read(s.fill) // the read that follows meets the same error
}

// pending reports whether something was read that the library has not taken.
func (s *socket) pending() bool { return len(s.ahead) > 0 || s.in.Buffered() > 0 }

// take takes what the socket holds; false: nothing.
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

// say writes the close frame, after which nothing may follow: the library
// answers the client's close, which answers ours.
func (s *socket) say(code int, reason string) error {
	b := binary.BigEndian.AppendUint16([]byte{opClose, byte(2 + len(reason))}, uint16(code))
	return s.Last(append(b, reason...))
}

// Write is for the library, which writes control frames alone, each in one piece.
// Nothing follows its close, as nothing follows ours.
func (s *socket) Write(p []byte) (int, error) {
	if p[0] == opClose {
		return len(p), s.Last(p)
	}
	return s.Socket.Write(p)
}

// keep takes over what the server has read of the client already, so that its
// buffer can go, and makes the library's.
func (s *socket) keep(r *bufio.Reader) {
	if b, err := r.Peek(r.Buffered()); err == nil && len(b) > 0 {
		s.buf = readAhead.Get().(*[]byte)
		s.ahead = (*s.buf)[:copy(*s.buf, b)] // the server reads less than this at once
	}
	s.in = bufio.NewReaderSize(s, 16) // what it asks for is read ahead below
}

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
	h.socket = &socket{}
	h.socket.Take(conn, h.slow)
	h.socket.fill = h.socket.take
	h.socket.keep(rw.Reader)
	// The library writes control frames alone; each fits the buffer and is one write.
	return h.socket, bufio.NewReadWriter(h.socket.in, bufio.NewWriterSize(h.socket, 128)), nil
}

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
	"time"
)

// socket is the connection below a WebSocket. It makes each frame one write
// that nothing else comes into, and it knows whether the client takes and sends
// bytes at all.
type socket struct {
	net.Conn
	slow time.Duration // without a byte taken: stuck

	mu    sync.Mutex // one frame at a time
	heard atomic.Bool
	stuck atomic.Bool
}

// steps is how many times per slow the socket looks whether bytes were taken.
const steps = 4

// Read notes that the client lives.
func (s *socket) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if n > 0 {
		s.heard.Store(true)
	}
	return n, err
}

// Write writes a whole frame, for as long as the client goes on taking bytes.
func (s *socket) Write(p []byte) (total int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stuck.Load() {
		return 0, os.ErrDeadlineExceeded
	}
	for last := time.Now(); ; {
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
		if now := time.Now(); n > 0 {
			last = now
		} else if now.Sub(last) >= s.slow {
			s.stuck.Store(true)
			return total, err
		}
	}
}

// Frames begin with at most this many bytes before the payload.
const headBytes = 10

// Opcodes with the final bit, as the writer sends them.
const (
	opText = 0x81
	opPing = 0x89
	opPong = 0x8A
)

// writeText writes a text frame whose payload begins at headBytes of b.
func (s *socket) writeText(b []byte) error {
	n := len(b) - headBytes
	start := headBytes
	switch {
	case n < 126:
		start -= 2
		b[start+1] = byte(n)
	case n < 1<<16:
		start -= 4
		b[start+1] = 126
		binary.BigEndian.PutUint16(b[start+2:], uint16(n))
	default:
		start -= 10
		b[start+1] = 127
		binary.BigEndian.PutUint64(b[start+2:], uint64(n))
	}
	b[start] = opText
	_, err := s.Write(b[start:])
	return err
}

// writeControl writes a ping or a pong.
func (s *socket) writeControl(op byte, payload []byte) error {
	_, err := s.Write(append([]byte{op, byte(len(payload))}, payload...))
	return err
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

// Hijack keeps the server's reader, which may hold bytes of the client already;
// the library reads on from the socket after those.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	if tcp, ok := conn.(interface{ SetWriteBuffer(int) error }); ok {
		_ = tcp.SetWriteBuffer(sendBufferBytes) // without it the connection is only less bounded
	}
	h.socket = &socket{Conn: conn, slow: h.slow}
	// The library writes control frames alone; each fits the buffer and is one write.
	rw.Writer = bufio.NewWriterSize(h.socket, 256)
	return h.socket, rw, nil
}

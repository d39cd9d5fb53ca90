package sock

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Conn is one connection. Before it is added to a loop one goroutine owns it;
// after that Write and Cut may be called by any.
type Conn struct {
	loop *Loop
	to   Handler
	slot int32
	rest []byte // received, not used up; the loop's after Add

	// mu is held over system calls that never wait: it keeps whole writes whole
	// and a number from being another connection's by then.
	mu      sync.Mutex
	fd      int // -1: closed
	out     []byte
	waiting bool // for room to write out
}

// Dial connects.
func Dial(addr netip.AddrPort) (*Conn, error) { return dial(addr, 0) }

// DialNarrow connects with a bound on what the kernel takes in for a connection
// that does not read. It is there from the first byte on: a server goes by the
// largest room it has ever seen, and waits long for a client that had more.
func DialNarrow(addr netip.AddrPort, receiveBytes int) (*Conn, error) {
	return dial(addr, receiveBytes)
}

func dial(addr netip.AddrPort, receiveBytes int) (*Conn, error) {
	domain, sa := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().Unmap().As4()})
	if !addr.Addr().Unmap().Is4() {
		domain, sa = unix.AF_INET6, &unix.SockaddrInet6{Port: int(addr.Port()), Addr: addr.Addr().As16()}
	}
	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return nil, fmt.Errorf("a socket: %w", err)
	}
	c := &Conn{fd: fd}
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) // without it things are only slower
	if receiveBytes > 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBytes); err != nil {
			c.Cut()
			return nil, fmt.Errorf("a socket's receive buffer: %w", err)
		}
	}
	err = unix.Connect(fd, sa)
	if errors.Is(err, unix.EINPROGRESS) || errors.Is(err, unix.EINTR) {
		if err = c.await(unix.POLLOUT, time.Now().Add(dialTimeout)); err == nil {
			var code int
			if code, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); err == nil && code != 0 {
				err = unix.Errno(code)
			}
		}
	}
	if err != nil {
		c.Cut()
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	return c, nil
}

// await waits for a socket that is not in a loop yet.
func (c *Conn) await(events int16, deadline time.Time) error {
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return os.ErrDeadlineExceeded
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(c.fd), Events: events}}, int(left.Milliseconds())+1)
		if n > 0 {
			return nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Fetch waits for more bytes and gives all that are not used up. It is for the
// handshake, before Add.
func (c *Conn) Fetch(deadline time.Time) ([]byte, error) {
	for {
		if err := c.await(unix.POLLIN, deadline); err != nil {
			return nil, err
		}
		var b [4 << 10]byte
		n, err := unix.Read(c.fd, b[:])
		switch {
		case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, err
		case n == 0:
			return nil, io.EOF
		}
		c.rest = append(c.rest, b[:n]...)
		return c.rest, nil
	}
}

// Rest is what has been fetched and is not used up.
func (c *Conn) Rest() []byte { return c.rest }

// Use marks bytes of Rest as used up.
func (c *Conn) Use(n int) { c.rest = append(c.rest[:0], c.rest[n:]...) }

// Write writes all of b, now or when there is room. Who writes bounds what may
// be under way: a load by its window.
func (c *Conn) Write(b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd < 0 {
		return ErrCut
	}
	if len(c.out) > 0 {
		c.out = append(c.out, b...)
		return nil
	}
	n, err := c.write(b)
	if err != nil {
		return err
	}
	if n < len(b) {
		c.out = append(c.out, b[n:]...)
		return c.watchLocked(true)
	}
	return nil
}

func (c *Conn) write(b []byte) (total int, err error) {
	for total < len(b) {
		n, err := unix.Write(c.fd, b[total:])
		switch {
		case errors.Is(err, unix.EAGAIN):
			return total, nil
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return total, err
		}
		total += n
	}
	return total, nil
}

// flush writes what waits for room.
func (c *Conn) flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd < 0 || len(c.out) == 0 {
		return nil
	}
	n, err := c.write(c.out)
	if err != nil {
		return err
	}
	c.out = append(c.out[:0], c.out[n:]...)
	if len(c.out) == 0 {
		return c.watchLocked(false)
	}
	return nil
}

// watchLocked asks the loop to say when there is room, or not any more.
func (c *Conn) watchLocked(room bool) error {
	if c.waiting == room || c.loop == nil {
		return nil
	}
	c.waiting = room
	return c.loop.control(unix.EPOLL_CTL_MOD, c)
}

// read reads into b; 0 without an error: nothing is there.
func (c *Conn) read(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd < 0 {
		return 0, ErrCut
	}
	n, err := unix.Read(c.fd, b)
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
		return 0, nil
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// Drop reads at most n bytes that are there and forgets them. It is for a
// connection that is in no loop. io.EOF: the server has ended it.
func (c *Conn) Drop(n int) (int, error) {
	var b [4 << 10]byte
	total := 0
	for total < n {
		k, err := c.read(b[:min(n-total, len(b))])
		total += k
		if err != nil || k == 0 {
			return total, err
		}
	}
	return total, nil
}

// Cut ends the connection at once, by a reset: nothing lingers, and a port can
// be used again. It may be called more than once.
func (c *Conn) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd < 0 {
		return
	}
	_ = unix.SetsockoptLinger(c.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	_ = unix.Close(c.fd)
	c.fd = -1
}

package sock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// bufferBytes is what the connections of a loop read into, one after another.
	bufferBytes = 256 << 10
	// keepBytes of room may stay with a connection that has nothing in it.
	keepBytes = 4 << 10
	// eventsAtOnce is how many connections one look at the set tells of.
	eventsAtOnce = 512
	// fewEvents are not worth a look.
	fewEvents = 64
	// lookEvery is how late a loop may notice that it is to end.
	lookEvery = 50 // ms
)

// Loop reads connections on one goroutine.
type Loop struct {
	set    int
	buf    []byte
	gather time.Duration

	mu    sync.Mutex
	conns []*Conn // by slot; nil: over
}

// NewLoop makes a loop without connections. Close gives back what it holds.
//
// With gather it looks away for so long after it has found little to read: a
// server that writes to one connection after another would else wake it for each
// of them, and pay for the waking.
func NewLoop(gather time.Duration) (*Loop, error) {
	set, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("an epoll set: %w", err)
	}
	return &Loop{set: set, buf: make([]byte, bufferBytes), gather: gather}, nil
}

// Add hands a connection over, with what it has fetched already.
func (l *Loop) Add(c *Conn, to Handler) error {
	if len(c.rest) > 0 {
		used, err := to.Receive(c.rest)
		if err != nil {
			return err
		}
		c.Use(used)
	}
	if len(c.rest) == 0 {
		c.rest = nil
	}
	l.mu.Lock()
	c.slot = int32(len(l.conns))
	l.conns = append(l.conns, c)
	l.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd < 0 {
		return ErrCut
	}
	c.loop, c.to, c.waiting = l, to, len(c.out) > 0
	if err := l.control(unix.EPOLL_CTL_ADD, c); err != nil {
		return fmt.Errorf("watch a connection: %w", err)
	}
	return nil
}

func (l *Loop) control(op int, c *Conn) error {
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: c.slot}
	if c.waiting {
		ev.Events |= unix.EPOLLOUT
	}
	return unix.EpollCtl(l.set, op, c.fd, &ev)
}

// Run reads until ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	events := make([]unix.EpollEvent, eventsAtOnce)
	for ctx.Err() == nil {
		n, err := unix.EpollWait(l.set, events, lookEvery)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for connections: %w", err)
		}
		for _, ev := range events[:max(n, 0)] {
			l.mu.Lock()
			c := l.conns[ev.Fd]
			l.mu.Unlock()
			if c == nil {
				continue
			}
			if ev.Events&unix.EPOLLOUT != 0 {
				if err := c.flush(); err != nil {
					l.end(c, err)
					continue
				}
			}
			if ev.Events&^unix.EPOLLOUT != 0 {
				l.receive(c)
			}
		}
		if l.gather > 0 && n < fewEvents {
			t := unix.NsecToTimespec(int64(l.gather))
			_ = unix.Nanosleep(&t, nil) // a signal makes it shorter, which does no harm
		}
	}
	return nil
}

// receive reads once: where there is more, the set tells again.
func (l *Loop) receive(c *Conn) {
	k := copy(l.buf, c.rest)
	n, err := c.read(l.buf[k:])
	if err != nil {
		l.end(c, err)
		return
	}
	if n == 0 {
		return
	}
	used, err := c.to.Receive(l.buf[:k+n])
	if err != nil {
		l.end(c, err)
		return
	}
	rest := l.buf[used : k+n]
	switch {
	case len(rest) > 0:
		c.rest = append(c.rest[:0], rest...)
	case cap(c.rest) > keepBytes:
		c.rest = nil
	default:
		c.rest = c.rest[:0]
	}
	if len(rest) > len(l.buf)/2 { // what handlers take for a message is bounded
		l.buf = make([]byte, 2*len(l.buf))
	}
}

func (l *Loop) end(c *Conn, err error) {
	l.mu.Lock()
	l.conns[c.slot] = nil
	l.mu.Unlock()
	c.Cut()
	if errors.Is(err, ErrCut) {
		return
	}
	if errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) {
		err = fmt.Errorf("%w: %w", io.ErrUnexpectedEOF, err)
	}
	c.to.Ended(err)
}

// Close cuts the connections that are left. Run must have returned.
func (l *Loop) Close() {
	l.mu.Lock()
	conns := l.conns
	l.conns = nil
	l.mu.Unlock()
	for _, c := range conns {
		if c != nil {
			c.Cut()
		}
	}
	_ = unix.Close(l.set)
}

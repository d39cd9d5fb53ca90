package rpc

import (
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
)

// poster writes without waiting.
type poster struct {
	raw    syscall.RawConn // nil: the connection cannot do that
	behind atomic.Bool     // a goroutine writes what a post has left
	// Of those goroutines. One begins under framed.writing, and has it until it is done.
	finishing sync.WaitGroup

	// Of one write; guarded by framed.writing.
	run func(fd uintptr)
	p   []byte
	n   int
	err error
}

func (t *poster) init(conn net.Conn) {
	if c, ok := conn.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			t.raw, t.run = raw, t.once
		}
	}
}

// write gives the kernel what it takes at once.
func (t *poster) write(p []byte) (n int, err error) {
	t.p = p
	err = t.raw.Control(t.run)
	t.p = nil
	if err != nil {
		return 0, err // it is closed
	}
	return t.n, t.err
}

func (t *poster) once(fd uintptr) {
	for {
		switch n, err := syscall.Write(int(fd), t.p); err {
		case nil:
			t.n, t.err = n, nil
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			t.n, t.err = 0, nil
		default:
			t.n, t.err = 0, err
		}
		return
	}
}

// ready says whether a post would write at once, as far as anybody knows.
func (f *framed) ready() bool { return f.poster.raw != nil && !f.poster.behind.Load() }

// post is send for who must not wait for a connection that takes no bytes. What is left
// then a goroutine writes, and whoever sends next waits for that: so ready is asked first.
func (f *framed) post(kind byte, e *encoder) error {
	f.writing.Lock() // of others an alive frame alone may hold it, for a moment
	if f.torn != nil {
		defer f.writing.Unlock()
		return f.torn
	}
	f.writes.Add(1)
	pieces := e.frame(kind)
	for i, p := range pieces {
		n, err := f.poster.write(p)
		f.metrics.sent.Add(float64(n))
		switch {
		case err != nil:
			f.torn = err
			f.written()
			return err
		case n < len(p):
			f.poster.behind.Store(true)
			rest := slices.Concat(append([][]byte{p[n:]}, pieces[i+1:]...)...)
			f.poster.finishing.Go(func() { f.finish(rest) })
			return nil
		}
	}
	f.written()
	return nil
}

func (f *framed) written() {
	f.writes.Add(1)
	f.writing.Unlock()
}

// finish writes what a post has left.
func (f *framed) finish(rest []byte) {
	n, err := f.bare.Write(rest)
	f.metrics.sent.Add(float64(n))
	if err != nil {
		f.torn = err // who receives finds the connection broken
	}
	f.poster.behind.Store(false)
	f.written()
}

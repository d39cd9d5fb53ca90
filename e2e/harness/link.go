package harness

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// link is one connection between two nodes.
type link struct {
	source  string // id of the node that opened it
	kind    string
	address string
	near    *net.TCPConn // to the node that opened it
	gone    chan struct{}

	mu  sync.Mutex
	far *net.TCPConn // to the other one
	cut bool
}

// reached takes the other half of the link; false: it was reset meanwhile.
func (c *link) reached(far *net.TCPConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		_ = far.Close() // nobody is there any more
		return false
	}
	c.far = far
	return true
}

// abandoned says that the node that opened the link has given it up: where it hung
// until then, nothing of it has reached the other one, nor may it later.
func (c *link) abandoned() (yes bool) {
	raw, err := c.near.SyscallConn()
	if err != nil {
		return true
	}
	err = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		yes = err == nil && info.State != established
	})
	return yes || err != nil
}

const established = 1 // TCP_ESTABLISHED of the kernel

// reset ends both halves; neither end hears what was under way.
func (c *link) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return
	}
	c.cut = true
	close(c.gone)
	for _, half := range []*net.TCPConn{c.near, c.far} {
		if half != nil {
			_ = half.SetLinger(0)
			_ = half.Close() // it may have ended by itself
		}
	}
}

// chunk is what was read at once, or the end.
type chunk struct {
	bytes []byte
	due   time.Time
	err   error
}

const (
	chunkBytes = 32 << 10
	// chunksUnderWay bounds what a slow link holds; past it the sender waits, as
	// it would for its window.
	chunksUnderWay = 256
)

// pump passes one direction on until it ends. A link that is slow carries as much
// as another, later.
func (l *Links) pump(c *link, forward bool, from io.Reader, to *net.TCPConn) {
	under := make(chan chunk, chunksUnderWay)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(under)
		for {
			b := make([]byte, chunkBytes)
			n, err := from.Read(b)
			s, _ := l.state(c, forward)
			k := chunk{bytes: b[:n], due: time.Now().Add(s.delay), err: err}
			select {
			case under <- k:
			case <-c.gone:
				return
			}
			if err != nil {
				return
			}
		}
	})
	defer reading.Wait()
	for k := range under {
		if wait := time.Until(k.due); wait > 0 && !l.sleep(wait, c.gone) {
			break
		}
		if !l.pass(c, forward) {
			break
		}
		if _, err := to.Write(k.bytes); err != nil {
			// The other end is gone: the sender hears of it once the way back is open.
			if l.pass(c, !forward) {
				c.reset()
			}
			break
		}
		switch {
		case errors.Is(k.err, io.EOF):
			_ = to.CloseWrite() // the other end may be gone
		case k.err != nil: // a reset, or the end of the test
			c.reset()
		}
	}
	for range under { // let the reader go
	}
}

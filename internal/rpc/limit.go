package rpc

import (
	"net"
	"sync"
	"sync/atomic"
)

// limited bounds the connections that are open at once; one more is closed
// unread. Waiting with it instead would leave it to those that are there.
type limited struct {
	net.Listener
	most int64
	open atomic.Int64
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= l.most {
			return &counted{Conn: conn, open: &l.open}, nil
		}
		l.open.Add(-1)
		_ = conn.Close() // nothing was said on it
	}
}

// counted gives its place back when it is closed, however often that is.
type counted struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

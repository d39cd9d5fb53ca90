//go:build faults

package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"

	"tidewire/internal/ident"
)

// seam leads connections through a test's proxy, which cuts and slows them. What it
// is told first is one line:
//
//	<id of the caller> <kind> <address>\n
type seam struct {
	links string // host:port of the proxy, over TCP and UDP; empty: there is none
}

// Through leads every connection and packet through a proxy.
func (d *Dialer) Through(proxy string) { d.links = proxy }

func (s seam) dial(ctx context.Context, self ident.NodeID, kind, address string) (net.Conn, error) {
	if s.links == "" {
		return direct(ctx, address)
	}
	conn, err := direct(ctx, s.links)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write(head(self, kind, address)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &linked{Conn: conn}, nil
}

func (s seam) datagram(self ident.NodeID, kind, address string, packet []byte) (string, []byte) {
	if s.links == "" {
		return address, packet
	}
	return s.links, append(head(self, kind, address), packet...)
}

func head(self ident.NodeID, kind, address string) []byte {
	return fmt.Appendf(nil, "%s %s %s\n", self, kind, address)
}

// linked is a connection through the proxy. One that the proxy resets before
// anything came back is one that it could not open: refused, as it would be without.
type linked struct {
	net.Conn
	spoken atomic.Bool // something came
	broken atomic.Bool // a write told of the reset: no read does then
}

func (l *linked) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if n > 0 {
		l.spoken.Store(true)
	}
	if errors.Is(err, syscall.ECONNRESET) || l.broken.Load() {
		err = l.refused(err)
	}
	return n, err
}

func (l *linked) Write(b []byte) (int, error) {
	n, err := l.Conn.Write(b)
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		l.broken.Store(true)
		err = l.refused(err)
	}
	return n, err
}

func (l *linked) refused(err error) error {
	if err == nil || l.spoken.Load() {
		return err
	}
	return fmt.Errorf("%w by the other end of the link", syscall.ECONNREFUSED)
}

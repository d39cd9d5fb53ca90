package membership

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// dialKind is what gossip's connections are called.
const dialKind = "gossip"

// maxStreams bounds the connections that others have open here: what comes beyond is
// closed unread. Exchanges of the whole state are rare and short.
const maxStreams = 64

// transport is memberlist's, with a dialler and a bound of ours.
type transport struct {
	*memberlist.NetTransport
	dial     func(ctx context.Context, kind, address string) (net.Conn, error) // nil: plain TCP
	datagram func(address string, packet []byte) (string, []byte)              // nil: as it is
	streams  chan net.Conn
	room     chan struct{} // a token for each stream that is open
	end      chan struct{}
	ended    sync.Once
	loops    sync.WaitGroup
}

// bindTries is how often a port is picked anew that is free for tcp and not for udp.
const bindTries = 10

// listen listens on the address, and writes a port it picked back.
func listen(c *memberlist.Config, cfg *Config) (*transport, error) {
	for try := 1; ; try++ {
		t, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{BindAddrs: []string{c.BindAddr}, BindPort: c.BindPort, Logger: c.Logger})
		if err == nil {
			port := t.GetAutoBindPort()
			if c.AdvertisePort == 0 {
				c.AdvertisePort = port
			}
			c.BindPort = port
			out := &transport{
				NetTransport: t, dial: cfg.Dial, datagram: cfg.Datagram,
				streams: make(chan net.Conn), room: make(chan struct{}, maxStreams), end: make(chan struct{}),
			}
			out.loops.Go(out.admit)
			return out, nil
		}
		if c.BindPort != 0 || try == bindTries {
			return nil, err
		}
	}
}

// admit passes streams on, as many as there is room for.
func (t *transport) admit() {
	for {
		var conn net.Conn
		select {
		case conn = <-t.NetTransport.StreamCh():
		case <-t.end:
			return
		}
		select {
		case t.room <- struct{}{}:
		default:
			_ = conn.Close() // nothing was said on it
			continue
		}
		admitted := &stream{Conn: conn, leave: sync.OnceFunc(func() { <-t.room })}
		select {
		case t.streams <- admitted:
		case <-t.end:
			_ = admitted.Close() // nobody is there to hear it
			return
		}
	}
}

// stream gives its room back when it is closed.
type stream struct {
	net.Conn
	leave func()
}

func (s *stream) Close() error {
	s.leave()
	return s.Conn.Close()
}

func (t *transport) StreamCh() <-chan net.Conn { return t.streams }

func (t *transport) WriteTo(b []byte, addr string) (time.Time, error) {
	return t.WriteToAddress(b, memberlist.Address{Addr: addr})
}

func (t *transport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	if t.datagram != nil {
		a.Addr, b = t.datagram(a.Addr, b)
	}
	return t.NetTransport.WriteToAddress(b, a)
}

func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return t.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

func (t *transport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	if t.dial == nil {
		return t.NetTransport.DialAddressTimeout(a, timeout)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return t.dial(ctx, dialKind, a.Addr)
}

// Shutdown closes the listeners first: their loops wait for somebody to take
// what they have.
func (t *transport) Shutdown() error {
	drained := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { t.drain(drained) })
	err := t.NetTransport.Shutdown()
	close(drained)
	wg.Wait()
	t.ended.Do(func() { close(t.end) })
	t.loops.Wait()
	return err
}

// drain takes what comes while the listeners close: memberlist takes nothing any more.
func (t *transport) drain(end <-chan struct{}) {
	for {
		select {
		case conn := <-t.streams:
			_ = conn.Close() // this node is leaving
		case <-t.NetTransport.PacketCh():
		case <-end:
			return
		}
	}
}

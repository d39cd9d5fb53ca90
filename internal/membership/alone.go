package membership

import (
	"net"
	"sync"

	"github.com/hashicorp/memberlist"
)

// alone is a transport that hears nobody: what comes is dropped unread. A node
// that gossips alone has no one to hear, and gossip believes whoever knows the
// cluster's label: strangers could name nodes, have them dialled, and hold
// connections open. Where nodes join one another they are to be authenticated
// here (memberlist's keyring).
type alone struct {
	*memberlist.NetTransport
	packets chan *memberlist.Packet // nothing is ever sent
	streams chan net.Conn           // likewise
	end     chan struct{}
	ended   sync.Once
	loops   sync.WaitGroup
}

func newAlone(c *memberlist.NetTransportConfig) (*alone, error) {
	t, err := memberlist.NewNetTransport(c)
	if err != nil {
		return nil, err
	}
	a := &alone{NetTransport: t, packets: make(chan *memberlist.Packet), streams: make(chan net.Conn), end: make(chan struct{})}
	a.loops.Go(a.drop)
	return a, nil
}

func (a *alone) PacketCh() <-chan *memberlist.Packet { return a.packets }
func (a *alone) StreamCh() <-chan net.Conn           { return a.streams }

func (a *alone) drop() {
	for {
		select {
		case <-a.NetTransport.PacketCh():
		case conn := <-a.NetTransport.StreamCh():
			_ = conn.Close() // nothing was said on it
		case <-a.end:
			return
		}
	}
}

// Shutdown closes the listeners first: their loops wait for somebody to take
// what they have.
func (a *alone) Shutdown() error {
	err := a.NetTransport.Shutdown()
	a.ended.Do(func() { close(a.end) })
	a.loops.Wait()
	return err
}

// bindTries is how often a port is picked anew that is free for tcp and not for udp.
const bindTries = 10

// transport listens on the address, and writes a port it picked back.
func transport(c *memberlist.Config) (*alone, error) {
	for try := 1; ; try++ {
		a, err := newAlone(&memberlist.NetTransportConfig{BindAddrs: []string{c.BindAddr}, BindPort: c.BindPort, Logger: c.Logger})
		if err == nil {
			port := a.GetAutoBindPort()
			if c.AdvertisePort == 0 {
				c.AdvertisePort = port
			}
			c.BindPort = port
			return a, nil
		}
		if c.BindPort != 0 || try == bindTries {
			return nil, err
		}
	}
}

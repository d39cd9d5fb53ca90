package client

import (
	"io"
	"net"
	"sync"
	"testing"
)

// Proxy forwards TCP connections to one address and cuts them in the middle of
// what the server sends: every other one by a reset, which takes with it what
// the client has not read yet, the rest by an end.
type Proxy struct {
	Addr string // host:port to dial

	target   string
	budget   func(connection int) int64
	listener net.Listener
	wait     sync.WaitGroup

	mu       sync.Mutex
	accepted int
	cuts     int
	open     map[net.Conn]bool
}

// NewProxy starts one that ends with the test. budget says after how many bytes
// from the server connection 0, 1, … is cut; a negative number: never.
func NewProxy(t testing.TB, target string, budget func(connection int) int64) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Addr: l.Addr().String(), target: target, budget: budget, listener: l, open: map[net.Conn]bool{}}
	p.wait.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close() // accept ends
		p.mu.Lock()
		for c := range p.open {
			_ = c.Close() // its copying ends
		}
		p.mu.Unlock()
		p.wait.Wait()
	})
	return p
}

// Cuts is how many connections were cut.
func (p *Proxy) Cuts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		n := p.accepted
		p.accepted++
		p.mu.Unlock()
		p.wait.Go(func() { p.forward(c.(*net.TCPConn), p.budget(n), n%2 == 0) })
	}
}

func (p *Proxy) forward(client *net.TCPConn, budget int64, reset bool) {
	upstream, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = client.Close() // the client tries again
		return
	}
	server := upstream.(*net.TCPConn)
	p.track(client, server)
	defer p.untrack(client, server)
	var up sync.WaitGroup
	up.Go(func() {
		_, _ = io.Copy(server, client) // ends with either side
		_ = server.CloseWrite()
	})
	if budget < 0 {
		_, _ = io.Copy(client, server)
		_ = client.CloseWrite()
	} else if n, err := io.CopyN(client, server, budget); err == nil && n == budget {
		p.mu.Lock()
		p.cuts++
		p.mu.Unlock()
		if reset {
			_ = client.SetLinger(0)
			_ = server.SetLinger(0)
		}
		_ = client.Close()
		_ = server.Close()
	}
	_ = client.CloseRead()
	up.Wait()
}

func (p *Proxy) track(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.open[c] = true
	}
}

func (p *Proxy) untrack(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close() // it may be cut already
		delete(p.open, c)
	}
}

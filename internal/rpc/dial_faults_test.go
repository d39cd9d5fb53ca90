//go:build faults

package rpc

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"tidewire/internal/cluster"
)

// proxy is a test's: it tells whom connections are for, and connects them or
// resets those of whoever cannot be reached.
func proxy(t *testing.T) (address string, heads <-chan string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan string, 100)
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	wg.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				in := bufio.NewReader(near)
				head, _ := in.ReadString('\n')
				told <- head
				words := strings.Fields(head)
				far, err := net.Dial("tcp", words[2])
				if err != nil {
					_ = near.(*net.TCPConn).SetLinger(0)
					near.Close()
					return
				}
				stop := context.AfterFunc(ctx, func() { near.Close(); far.Close() })
				defer stop()
				wg.Go(func() { _, _ = io.Copy(far, in); far.Close() })
				_, _ = io.Copy(near, far)
				near.Close()
			})
		}
	})
	t.Cleanup(func() { cancel(); l.Close(); wg.Wait() })
	return l.Addr().String(), told
}

func TestEveryConnectionGoesThroughTheProxy(t *testing.T) {
	s := serve(t, ServerConfig{}, "127.0.0.1:0")
	s.Broker(&broker{append: keepAll, life: cluster.Life{Node: nodeB, Epoch: 4}})
	links, heads := proxy(t)
	p := peersTo(t, s.Addr())
	p.cfg.Dialer.Through(links)
	if a := appended(t, toB(t, p), batchOf(1)); a.Err != nil {
		t.Fatal(a.Err)
	}
	if head, want := await(t, heads), nodeA.String()+" rpc "+s.Addr()+"\n"; head != want {
		t.Errorf("said %q, want %q", head, want)
	}
	at := func(address string) cluster.Node {
		return cluster.Node{ID: nodeB, BrokerEpoch: 4, Addresses: cluster.Addresses{RPC: address}}
	}
	if o := p.Probe(t.Context(), at(s.Addr())); o != cluster.Answered {
		t.Error(o)
	}
	if head, want := await(t, heads), nodeA.String()+" probe "+s.Addr()+"\n"; head != want {
		t.Errorf("said %q, want %q", head, want)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if o := p.Probe(ctx, at(refusing(t))); o != cluster.Refused {
		t.Errorf("a refusal behind the proxy is %v", o)
	}
	to, packet := p.cfg.Dialer.Datagram(KindGossip, "h:1", []byte("x\ny"))
	if want := nodeA.String() + " gossip h:1\nx\ny"; to != links || string(packet) != want {
		t.Errorf("%q to %s", packet, to)
	}
}

func TestWithoutAProxyConnectionsAreDirect(t *testing.T) {
	d := &Dialer{Self: nodeA}
	if to, packet := d.Datagram(KindGossip, "h:1", []byte("x")); to != "h:1" || string(packet) != "x" {
		t.Errorf("%q to %s", packet, to)
	}
	if _, err := d.DialContext(t.Context(), KindRaft, refusing(t)); err == nil {
		t.Error("connected to nobody")
	}
}

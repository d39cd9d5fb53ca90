package rpc

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/testkit/lateness"
	"tidewire/internal/testkit/ports"
)

func TestPeersFollowTheSnapshot(t *testing.T) {
	one, two := serve(t, ServerConfig{}, "127.0.0.1:0"), serve(t, ServerConfig{}, "127.0.0.1:0")
	one.Broker(&broker{append: keepAll})
	two.Broker(&broker{append: keepAll})
	var address atomic.Pointer[string]
	set := func(a string) { address.Store(&a) }
	set("")
	p := NewPeers(PeersConfig{
		Self:    func() cluster.Life { return cluster.Life{Node: nodeA} },
		Cluster: func() ident.ClusterID { return theirs },
		Address: func(ident.NodeID) string { return *address.Load() },
		Dialer:  &Dialer{Self: nodeA},
	})
	defer p.Close()
	if _, err := p.Node(nodeB); !fault.Is(err, fault.LeaderUnavailable) {
		t.Fatal(err)
	}
	set(one.Addr())
	first := toB(t, p)
	if a := appended(t, first, batchOf(1)); a.Err != nil {
		t.Fatal(a.Err)
	}
	if toB(t, p) != first {
		t.Error("there are two connections to one node")
	}
	set(two.Addr())
	second := toB(t, p)
	if second == first {
		t.Error("the node moved, and its connection stayed")
	}
	if a := appended(t, second, batchOf(1)); a.Err != nil {
		t.Fatal(a.Err)
	}
	await(t, first.ctx.Done())
	set("")
	await(t, second.ctx.Done()) // nobody asked: it is noticed
	if a := appended(t, second, batchOf(1)); !fault.Is(a.Err, fault.LeaderUnavailable) {
		t.Errorf("%+v", a)
	}
}

func TestPeersAtAnAddress(t *testing.T) {
	s := serve(t, ServerConfig{}, "127.0.0.1:0")
	s.Coordinator(&coordinator{})
	p := peersTo(t, refusing(t))
	r, err := p.At(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if j, err := r.Join(t.Context(), cluster.Join{Node: nodeA}); err != nil || !j.Voter {
		t.Errorf("%+v, %v", j, err)
	}
	if again, err := p.At(s.Addr()); again != r || err != nil {
		t.Error("there are two connections to one address")
	}
	for i := len(p.at) + len(p.nodes); i < maxPeers; i++ {
		p.at[string(rune(i))] = r
	}
	if _, err := p.At("127.0.0.1:1"); !fault.Is(err, fault.LeaderUnavailable) {
		t.Errorf("one connection too many: %v", err)
	}
}

// A node that comes back is reached soon, without anybody waiting for a back-off.
func TestANodeThatReturnsIsReached(t *testing.T) {
	address := ports.Keep(t)
	s := serve(t, ServerConfig{}, address)
	s.Broker(&broker{append: keepAll})
	r := toB(t, peersTo(t, address))
	if a := appended(t, r, batchOf(1)); a.Err != nil {
		t.Fatal(a.Err)
	}
	s.stop()
	parted(t, r)
	if a := appended(t, r, batchOf(1)); !fault.Is(a.Err, fault.LeaderUnavailable) {
		t.Errorf("%+v", a)
	}
	again := serve(t, ServerConfig{}, address)
	again.Broker(&broker{append: keepAll})
	began, late := time.Now(), lateness.Measure()
	for appended(t, r, batchOf(1)).Err != nil {
		if time.Since(began) > 5*time.Second {
			t.Fatal("it is not reached")
		}
		<-time.After(time.Millisecond)
	}
	if d := time.Since(began); d > 1500*time.Millisecond+late() {
		t.Errorf("it was reached after %v", d)
	}
}

func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	s := serve(t, ServerConfig{StopLimit: time.Millisecond}, "127.0.0.1:0")
	took := make(chan func(Appended), 1)
	s.Broker(&broker{append: func(_ Append, done func(Appended)) { took <- done }})
	p := peersTo(t, s.Addr())
	r := toB(t, p)
	answers := make(chan Appended, 1)
	r.Append(Append{Partition: topic, Batch: batchOf(1)}, func(a Appended) { answers <- a })
	done := await(t, took)
	p.Close()
	if a := await(t, answers); !fault.Is(a.Err, fault.UnknownOutcome) {
		t.Errorf("%+v", a)
	}
	done(Appended{})
	if _, err := p.Node(nodeB); !fault.Is(err, fault.LeaderUnavailable) {
		t.Error(err)
	}
	if a := appended(t, r, batchOf(1)); !fault.Is(a.Err, fault.LeaderUnavailable) {
		t.Errorf("%+v", a)
	}
}

// frozen passes bytes on until it is told to stop, as a process that is paused: its
// machine still takes what is sent to it.
type frozen struct {
	net.Listener
	to     string
	freeze chan struct{}
	wg     sync.WaitGroup
}

func freezer(t *testing.T, to string) *frozen {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &frozen{Listener: l, to: to, freeze: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	f.wg.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				t.Error(err)
				return
			}
			f.wg.Go(func() { <-ctx.Done(); near.Close(); far.Close() })
			f.wg.Go(func() { f.pump(far, near) })
			f.wg.Go(func() { f.pump(near, far) })
		}
	})
	t.Cleanup(func() { cancel(); l.Close(); f.wg.Wait() })
	return f
}

func (f *frozen) pump(to, from net.Conn) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		select {
		case <-f.freeze:
			_, _ = io.Copy(io.Discard, from)
			return
		default:
		}
		if _, bad := to.Write(b[:n]); err != nil || bad != nil {
			return
		}
	}
}

// A peer that stops without a word is found within two seconds, from both ends and
// whatever is under way.
func TestASilentNodeShows(t *testing.T) {
	s := serve(t, ServerConfig{StopLimit: time.Millisecond}, "127.0.0.1:0")
	took, followed, gone := make(chan func(Appended), 1), make(chan struct{}, 1), make(chan time.Time, 1)
	s.Broker(&broker{
		append: func(_ Append, done func(Appended)) { took <- done },
		follow: func(_ context.Context, _ Follow, st FollowerStream) error {
			followed <- struct{}{}
			err := st.Recv(&FromFollower{})
			gone <- time.Now()
			return err
		},
	})
	f := freezer(t, s.Addr())
	r := toB(t, peersTo(t, f.Addr().String()))
	answers := make(chan Appended, 1)
	r.Append(Append{Partition: topic, Batch: batchOf(1)}, func(a Appended) { answers <- a })
	await(t, took)
	stream, err := r.Follow(t.Context(), asFollower)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	await(t, followed)
	close(f.freeze)
	began, late := time.Now(), lateness.Measure()
	if err := stream.Recv(&FromLeader{}); !fault.Is(err, fault.LeaderUnavailable) {
		t.Error(err)
	}
	if a := await(t, answers); !fault.Is(a.Err, fault.UnknownOutcome) {
		t.Errorf("%+v", a)
	}
	client, server := time.Since(began), await(t, gone).Sub(began)
	if limit := 2500*time.Millisecond + late(); max(client, server) > limit {
		t.Errorf("the client noticed after %s, the server after %s; within %s they should have", client, server, limit)
	}
}

// A connection on which nothing happens stays.
func TestAQuietConnectionStays(t *testing.T) {
	s := serve(t, ServerConfig{IdleLimit: time.Second}, "127.0.0.1:0")
	s.Broker(&broker{append: keepAll})
	r := toB(t, peersTo(t, s.Addr()))
	if a := appended(t, r, batchOf(1)); a.Err != nil {
		t.Fatal(a.Err)
	}
	conn := r.live.Load()
	<-time.After(3 * time.Second)
	if a := appended(t, r, batchOf(1)); a.Err != nil || r.live.Load() != conn {
		t.Errorf("%v, and the connection is another: %v", a.Err, r.live.Load() != conn)
	}
}

func TestProbes(t *testing.T) {
	s := serve(t, ServerConfig{}, "127.0.0.1:0")
	silent, err := net.Listen("tcp", "127.0.0.1:0") // as a process that is paused
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	probe := func(address string, life ident.BrokerEpoch, limit time.Duration) (cluster.Outcome, time.Duration) {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		began, late := time.Now(), lateness.Measure()
		o := peersTo(t, "").Probe(ctx, cluster.Node{ID: nodeB, BrokerEpoch: life, Addresses: cluster.Addresses{RPC: address}})
		return o, time.Since(began) - late()
	}
	if o, _ := probe(s.Addr(), 4, 5*time.Second); o != cluster.Answered {
		t.Error(o)
	}
	b := &broker{}
	s.Broker(b)
	for _, c := range []struct {
		life cluster.Life
		want cluster.Outcome
	}{
		{cluster.Life{Node: nodeB, Epoch: 9}, cluster.Answered},
		{cluster.Life{Node: nodeB, Epoch: 8}, cluster.Answered}, // about to begin the life that it has registered
		{cluster.Life{Node: nodeB, Epoch: 10}, cluster.Refused},
		{cluster.Life{Node: nodeB}, cluster.Refused}, // it was started anew
		{cluster.Life{Node: nodeA, Epoch: 9}, cluster.Refused},
	} {
		b.life = c.life
		if o, _ := probe(s.Addr(), 9, 5*time.Second); o != c.want {
			t.Errorf("%+v answers the probe of life 9: %v, want %v", c.life, o, c.want)
		}
	}
	if o, d := probe(refusing(t), 4, 5*time.Second); o != cluster.Refused || d > time.Second {
		t.Errorf("%v after %v", o, d)
	}
	if o, d := probe(silent.Addr().String(), 4, 500*time.Millisecond); o != cluster.Silent || d > 2*time.Second {
		t.Errorf("%v after %v", o, d)
	}
	// A refusal shows at once, whatever the connection of the calls waits for.
	address := refusing(t)
	p := peersTo(t, address)
	for range 5 {
		appended(t, toB(t, p), batchOf(1))
		if o, d := probe(address, 4, 5*time.Second); o != cluster.Refused || d > 200*time.Millisecond {
			t.Errorf("%v after %v", o, d)
		}
	}
}

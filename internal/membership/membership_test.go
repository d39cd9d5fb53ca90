package membership_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/membership"
)

// buffer may be written by memberlist's goroutines while it is read.
type buffer struct {
	mu      sync.Mutex
	b       bytes.Buffer
	written chan struct{} // room for one; nil: nobody waits
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case b.written <- struct{}{}:
	default:
	}
	return b.b.Write(p)
}

// await waits until it has been told something.
func (b *buffer) await(t *testing.T, what string) {
	t.Helper()
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	for !strings.Contains(b.String(), what) {
		select {
		case <-b.written:
		case <-limit.C:
			t.Fatalf("%q is not told:\n%s", what, b)
		}
	}
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func self(id byte) membership.Node {
	return membership.Node{
		ID: ident.NodeID{id}, Name: fmt.Sprintf("n%d", id), Roles: []string{"broker", "coordinator"},
		Addresses: cluster.Addresses{HTTP: "127.0.0.1:1", RPC: fmt.Sprintf("127.0.0.1:%d", 1000+int(id)), Raft: "127.0.0.1:3"},
	}
}

func config(id byte, seeds ...string) membership.Config {
	return membership.Config{Self: self(id), Bind: "127.0.0.1:0", Seeds: seeds}
}

// start opens one and runs it until stop, or the end of the test.
func start(t *testing.T, cfg membership.Config) (m *membership.Membership, stop func()) {
	t.Helper()
	m = membership.New(cfg)
	if err := m.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := m.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(stop)
	return m, stop
}

// until waits for a view that is as it should be.
func until(t *testing.T, m *membership.Membership, what string, ok func(*membership.View) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for v := m.View(); !ok(v); {
		next, err := m.Next(ctx, v.Version)
		if err != nil {
			t.Fatalf("%s: %v; it knows %+v", what, err, v.Nodes)
		}
		v = next
	}
}

func knows(ids ...byte) func(*membership.View) bool {
	return func(v *membership.View) bool {
		var want []ident.NodeID
		for _, id := range ids {
			want = append(want, ident.NodeID{id})
		}
		var got []ident.NodeID
		for _, n := range v.Nodes {
			got = append(got, n.ID)
		}
		return slices.Equal(got, want)
	}
}

func TestALoneNodeListensAndLeaves(t *testing.T) {
	var out buffer
	cfg := config(1)
	cfg.Logger = slog.New(slog.NewTextHandler(&out, nil))
	m, stop := start(t, cfg)
	addr := m.Addr()
	if host, port, err := net.SplitHostPort(addr); err != nil || host != "127.0.0.1" || port == "0" {
		t.Fatalf("%s, %v", addr, err)
	}
	until(t, m, "it knows itself", knows(1))
	stop()
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Fatal("still listening after it left")
	}
	if s := out.String(); s != "" {
		t.Fatalf("not quiet: %s", s)
	}
}

func TestNodesTellOneAnotherWhatTheyAre(t *testing.T) {
	one, _ := start(t, config(1))
	two, _ := start(t, config(2, one.Addr()))
	three, stop := start(t, config(3, one.Addr()))
	all := []*membership.Membership{one, two, three}
	for _, m := range all {
		until(t, m, "it knows all three", knows(1, 2, 3))
	}
	n, ok := two.Find(ident.NodeID{3})
	if want := self(3); !ok || n.Name != want.Name || !slices.Equal(n.Roles, want.Roles) || n.Addresses.RPC != want.Addresses.RPC || n.Addresses.Gossip != three.Addr() || !n.Coordinator() {
		t.Fatalf("%+v", n)
	}
	if err := three.Update(func(n *membership.Node) { n.Cluster, n.Addresses.RPC = ident.ClusterID{5}, "127.0.0.1:9" }); err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		until(t, m, "it hears what changed", func(v *membership.View) bool {
			return slices.ContainsFunc(v.Nodes, func(n membership.Node) bool {
				return n.ID == ident.NodeID{3} && n.Cluster == ident.ClusterID{5} && n.Addresses.RPC == "127.0.0.1:9"
			})
		})
	}
	stop()
	until(t, one, "it hears that one left", knows(1, 2))
	// It comes back at once, at another address.
	back, _ := start(t, config(3, one.Addr()))
	until(t, two, "it is back", func(v *membership.View) bool {
		return slices.ContainsFunc(v.Nodes, func(n membership.Node) bool { return n.Addresses.Gossip == back.Addr() })
	})
	if err := back.Update(func(n *membership.Node) { n.Name = strings.Repeat("x", 600) }); err == nil {
		t.Fatal("more was told than gossip carries")
	}
}

func TestClustersNeverMerge(t *testing.T) {
	of := func(c byte, id byte, seeds ...string) membership.Config {
		cfg := config(id, seeds...)
		cfg.Self.Cluster = ident.ClusterID{c}
		return cfg
	}
	a1, _ := start(t, of(1, 1))
	a2, _ := start(t, of(1, 2, a1.Addr()))
	b3, _ := start(t, of(2, 3, a1.Addr(), a2.Addr()))
	// It knows no cluster yet and meets both.
	c9, _ := start(t, config(9, a1.Addr(), b3.Addr()))
	until(t, c9, "it meets everybody", knows(1, 2, 3, 9))
	until(t, a2, "its own, and the one without a cluster", knows(1, 2, 9))
	until(t, b3, "likewise", knows(3, 9))
	if err := c9.Update(func(n *membership.Node) { n.Cluster = ident.ClusterID{2} }); err != nil {
		t.Fatal(err)
	}
	until(t, c9, "it has chosen", knows(3, 9))
	until(t, a1, "the other cluster forgets it", knows(1, 2))
}

// Whoever starts a node on the folder of another cluster sees it serve, and not join.
func TestAnotherClusterIsToldOfOnce(t *testing.T) {
	var logs [2]buffer
	in := func(k int, seeds ...string) membership.Config {
		logs[k].written = make(chan struct{}, 1)
		cfg := config(byte(k+1), seeds...)
		cfg.Self.Cluster = ident.ClusterID{byte(k + 1)}
		cfg.Logger = slog.New(slog.NewTextHandler(&logs[k], nil))
		return cfg
	}
	one, stopOne := start(t, in(0))
	_, stopTwo := start(t, in(1, one.Addr()))
	for k := range logs {
		logs[k].await(t, "another cluster was met")
	}
	stopTwo()
	stopOne()
	for k := range logs {
		if log := logs[k].String(); strings.Count(log, "another cluster") != 1 || !strings.Contains(log, "its_cluster="+(ident.ClusterID{byte(2 - k)}).String()) {
			t.Errorf("n%d says:\n%s", k+1, log)
		}
	}
}

type kept struct {
	mu    sync.Mutex
	peers []string
}

func (k *kept) Load() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.peers
}

func (k *kept) Save(p []string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.peers = p
	return nil
}

func TestPeersOfOldAreFoundWithoutSeeds(t *testing.T) {
	memory := &kept{}
	one, _ := start(t, config(1))
	cfg := config(2, one.Addr())
	cfg.Peers = memory
	two, stop := start(t, cfg)
	until(t, two, "it joins", knows(1, 2))
	deadline := time.Now().Add(20 * time.Second)
	for tick := time.NewTicker(20 * time.Millisecond); len(memory.Load()) == 0; <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("nothing is remembered")
		}
	}
	stop()
	cfg.Seeds = nil
	again, _ := start(t, cfg)
	until(t, again, "it finds what it remembers", knows(1, 2))
}

// Links that are cut and healed: both sides give one another up, and meet again.
func TestASplitHeals(t *testing.T) {
	var cut sync.Map // addresses that nothing goes to
	wire := func(cfg membership.Config) membership.Config {
		cfg.Dial = func(ctx context.Context, kind, address string) (net.Conn, error) {
			if _, off := cut.Load(address); off || kind != "gossip" {
				return nil, errors.New("no way there")
			}
			var d net.Dialer
			return d.DialContext(ctx, "tcp", address)
		}
		cfg.Datagram = func(address string, packet []byte) (string, []byte) {
			if _, off := cut.Load(address); off {
				return "127.0.0.1:9", packet // nobody listens there
			}
			return address, packet
		}
		return cfg
	}
	one, _ := start(t, wire(config(1)))
	two, _ := start(t, wire(config(2, one.Addr())))
	until(t, one, "they meet", knows(1, 2))
	until(t, two, "they meet", knows(1, 2))
	cut.Store(one.Addr(), true)
	cut.Store(two.Addr(), true)
	until(t, one, "one gives the other up", knows(1))
	until(t, two, "the other does so too", knows(2))
	cut.Clear()
	until(t, one, "they meet again", knows(1, 2))
	until(t, two, "they meet again", knows(1, 2))
}

func TestOneOfThreeFounds(t *testing.T) {
	var all []*membership.Membership
	var seed string
	for id := byte(1); id <= 3; id++ {
		cfg := config(id, "127.0.0.1:1")
		if seed != "" {
			cfg.Seeds = append(cfg.Seeds, seed)
		}
		m, _ := start(t, cfg)
		if seed == "" {
			seed = m.Addr()
		}
		all = append(all, m)
	}
	decisions := make([]membership.Decision, 3)
	var wg sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for i, m := range all {
		wg.Go(func() {
			d, err := m.Settle(ctx, 3)
			if err != nil {
				t.Error(err)
				return
			}
			decisions[i] = d
			if d.Do == membership.Found {
				if err := m.Update(func(n *membership.Node) { n.Empty, n.Cluster = false, ident.ClusterID{7} }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for i, want := range []membership.Step{membership.Found, membership.Join, membership.Join} {
		if decisions[i].Do != want {
			t.Errorf("node %d: %s, because %s", i+1, decisions[i].Do, decisions[i].Why)
		}
	}
}

func TestAnAdvertisedHostIsTakenAsGiven(t *testing.T) {
	cfg := config(1)
	cfg.Advertise = "127.0.0.9:0"
	m := membership.New(cfg)
	if err := m.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if host, port, err := net.SplitHostPort(m.Addr()); err != nil || host != "127.0.0.9" || port == "0" {
		t.Fatal(m.Addr(), err)
	}
	if err := errors.Join(m.Close(), m.Close()); err != nil {
		t.Fatal(err)
	}
}

// Garbage fills neither the table of open files nor the log, and the gossip goes on.
func TestStrangersAreBounded(t *testing.T) {
	var out buffer
	cfg := config(1)
	cfg.Logger = slog.New(slog.NewTextHandler(&out, nil))
	one, _ := start(t, cfg)
	var held []net.Conn
	for range 300 {
		conn, err := net.Dial("tcp", one.Addr())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, conn)
	}
	udp, err := net.Dial("udp", one.Addr())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		if _, err := udp.Write([]byte(strings.Repeat(string(rune(i%250)), 1+i))); err != nil {
			t.Fatal(err)
		}
	}
	for i, conn := range held {
		if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		var e net.Error
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.As(err, &e) && e.Timeout() {
			t.Fatalf("idle connection %d is kept: %v", i, err)
		}
		_ = conn.Close() // it is closed at the other end
	}
	if err := udp.Close(); err != nil {
		t.Fatal(err)
	}
	two, _ := start(t, config(2, one.Addr()))
	until(t, two, "others are still heard", knows(1, 2))
	if n := strings.Count(out.String(), "\n"); n > 25 {
		t.Errorf("%d lines of log", n)
	}
}

func TestBadConfigsAreNamed(t *testing.T) {
	for _, bind := range []string{"", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:70000"} {
		cfg := config(1)
		cfg.Bind = bind
		if err := membership.New(cfg).Open(t.Context()); err == nil || !strings.Contains(err.Error(), "gossip address") {
			t.Errorf("%q: %v", bind, err)
		}
	}
	if err := membership.New(membership.Config{Bind: "127.0.0.1:0"}).Open(t.Context()); err == nil {
		t.Error("a node without an id gossips")
	}
}

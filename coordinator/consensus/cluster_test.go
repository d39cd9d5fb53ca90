package consensus

import (
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

	"github.com/hashicorp/raft"

	"tidewire/internal/ident"
	"tidewire/internal/testkit/lateness"
)

// wires connects the nodes of a test and can cut one off.
type wires struct {
	mu    sync.Mutex
	off   map[ident.NodeID]bool
	where map[string]ident.NodeID // by address
	open  map[net.Conn][2]ident.NodeID
}

func newWires() *wires {
	return &wires{off: map[ident.NodeID]bool{}, where: map[string]ident.NodeID{}, open: map[net.Conn][2]ident.NodeID{}}
}

func (w *wires) dial(from ident.NodeID) Dial {
	return func(ctx context.Context, kind, address string) (net.Conn, error) {
		w.mu.Lock()
		to, known := w.where[address]
		cut := w.off[from] || w.off[to]
		w.mu.Unlock()
		if kind != dialKind || !known || cut {
			return nil, fmt.Errorf("no way from %s to %s (%s)", from, address, kind)
		}
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", address)
		if err == nil {
			w.mu.Lock()
			w.open[conn] = [2]ident.NodeID{from, to}
			w.mu.Unlock()
		}
		return conn, err
	}
}

func (w *wires) cut(id ident.NodeID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.off[id] = true
	for conn, ends := range w.open {
		if ends[0] == id || ends[1] == id {
			_ = conn.Close() // the other end hears of it
			delete(w.open, conn)
		}
	}
}

func (w *wires) heal(id ident.NodeID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.off, id)
}

// member is one node of a test's cluster.
type member struct {
	*Node
	tape *tape
	cfg  Config
	end  func() error // stops it and gives what Run gave
}

type group struct {
	t     *testing.T
	wires *wires
	all   map[ident.NodeID]*member
}

func newGroup(t *testing.T) *group {
	return &group{t: t, wires: newWires(), all: map[ident.NodeID]*member{}}
}

var testCluster = ident.ClusterID{0xC1}

// start opens a node on a folder and runs it.
func (g *group) start(id ident.NodeID, dir string, adjust func(*Config, *Node)) *member {
	g.t.Helper()
	cfg, tape := tapeConfig(dir)
	cfg.ID, cfg.Found = id, true
	cfg.Join = id != ident.NodeID{1}
	cfg.Cluster = func() ident.ClusterID { return testCluster }
	cfg.Dial = g.wires.dial(id)
	if testing.Verbose() {
		cfg.Logger = slog.New(slog.NewTextHandler(g.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", id[0])
	}
	n := New(cfg)
	if adjust != nil {
		adjust(&n.cfg, n)
	}
	if err := n.Open(g.t.Context()); err != nil {
		g.t.Fatal(err)
	}
	g.wires.mu.Lock()
	g.wires.where[n.Addr()] = id
	g.wires.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() { done <- n.Run(ctx) })
	m := &member{Node: n, tape: tape, cfg: n.cfg, end: sync.OnceValue(func() error { cancel(); wg.Wait(); return <-done })}
	g.t.Cleanup(func() { _ = m.end() }) // what matters was asked for before
	g.all[id] = m
	return m
}

// kill cuts a node off and then stops it, so that it can hand over nothing.
func (g *group) kill(m *member) {
	g.t.Helper()
	g.wires.cut(m.cfg.ID)
	eventually(g.t, 5*time.Second, "a node that is cut off does not lead", func() bool { return !m.Status().Leads })
	if err := m.end(); err != nil {
		g.t.Fatal(err)
	}
	delete(g.all, m.cfg.ID)
	g.wires.heal(m.cfg.ID)
}

// eventually polls: nothing tells of these conditions.
func eventually(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}

// electionLimit is for a machine that does much else: how long an election takes is printed.
const electionLimit = 10 * time.Second

func (g *group) leader() *member {
	g.t.Helper()
	var found *member
	eventually(g.t, electionLimit, "one of them leads", func() bool {
		for _, m := range g.all {
			if m.Status().Leads && m.Barrier(g.t.Context()) == nil {
				found = m
				return true
			}
		}
		return false
	})
	return found
}

// say has whoever leads say something: on a busy machine that may change meanwhile.
func (g *group) say(i int) {
	g.t.Helper()
	eventually(g.t, 5*time.Second, "a leader takes a command", func() bool {
		_, err := g.leader().Apply(g.t.Context(), Command{Bytes: fmt.Appendf(nil, "say %d", i)})
		var e *ApplyError
		if err != nil && (!errors.As(err, &e) || e.Outcome != NotKept) {
			g.t.Fatal(err)
		}
		return err == nil
	})
}

// lead has whoever leads change the group: on a busy machine that may be another one
// meanwhile.
func (g *group) lead(what string, do func(leader *member) error) {
	g.t.Helper()
	eventually(g.t, electionLimit, "a leader "+what, func() bool {
		err := do(g.leader())
		if err != nil && !NotLeading(err) {
			g.t.Fatal(err)
		}
		return err == nil
	})
}

// three founds with one node and takes two others in.
func three(t *testing.T) *group {
	t.Helper()
	g := newGroup(t)
	first := g.start(ident.NodeID{1}, t.TempDir(), nil)
	say(t, first.Node, 0, 3)
	for i := byte(2); i <= 3; i++ {
		g.join(first, g.start(ident.NodeID{i}, t.TempDir(), nil))
	}
	return g
}

// join takes a node in, waits until it has what the leader has, and gives it a vote.
func (g *group) join(leader, m *member) {
	g.t.Helper()
	id := m.cfg.ID
	if err := leader.Add(g.t.Context(), id, m.Addr()); err != nil {
		g.t.Fatal(err)
	}
	eventually(g.t, 5*time.Second, "the new one catches up", func() bool { return m.Status().Last == leader.Status().Last })
	if m.Status().Leads || slices.ContainsFunc(leader.Members(), func(o Member) bool { return o.ID == id && o.Voter }) {
		g.t.Fatal("it counts before it has a vote")
	}
	if err := leader.Promote(g.t.Context(), id, m.Addr()); err != nil {
		g.t.Fatal(err)
	}
}

func (g *group) same(want string) {
	g.t.Helper()
	for id, m := range g.all {
		eventually(g.t, 10*time.Second, "every member holds the same", func() bool { return m.tape.text() == want })
		if t := m.tape.text(); t != want {
			g.t.Fatalf("%s holds %q", id, t)
		}
	}
}

func TestThreeMembersHoldTheSame(t *testing.T) {
	g := three(t)
	leader := g.leader()
	if m := leader.Members(); len(m) != 3 || slices.ContainsFunc(m, func(m Member) bool { return !m.Voter }) {
		t.Fatalf("%+v", m)
	}
	say(t, leader.Node, 3, 40)
	g.same(leader.tape.text())
	for _, m := range g.all {
		if m == leader {
			continue
		}
		if _, err := m.Apply(t.Context(), Command{Bytes: []byte("say no")}); err == nil || !NotLeading(err) {
			t.Fatalf("a follower applied: %v", err)
		}
		if err := m.Prove(t.Context()); err == nil || !NotLeading(err) {
			t.Fatalf("a follower proved that it leads: %v", err)
		}
	}
	if err := leader.Prove(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestAKilledLeaderLosesNothing(t *testing.T) {
	g := three(t)
	for round := range 3 {
		leader := g.leader()
		say(t, leader.Node, 10*round, 10*round+10)
		want := leader.tape.text()
		g.wires.cut(leader.cfg.ID)
		began := time.Now()
		delete(g.all, leader.cfg.ID)
		next := g.leader()
		t.Logf("the next one led after %s", time.Since(began).Round(time.Millisecond))
		if got := next.tape.text(); got != want {
			t.Fatalf("the next leader holds %q, not %q", got, want)
		}
		g.kill(leader)
		say(t, next.Node, 1000, 1001)
		// It comes back at another address, which nobody else knows yet.
		back := g.start(leader.cfg.ID, leader.cfg.Dir, func(c *Config, _ *Node) { c.Join = true })
		if back.Addr() == leader.Addr() {
			t.Log("the port is the same again")
		}
		if err := next.Add(t.Context(), back.cfg.ID, back.Addr()); err != nil {
			t.Fatal(err)
		}
		g.same(next.tape.text())
	}
}

func TestAMemberThatWasAwayIsBackAtOnce(t *testing.T) {
	g := three(t)
	leader := g.leader()
	var away *member
	for _, m := range g.all {
		if m != leader {
			away = m
		}
	}
	g.wires.cut(away.cfg.ID)
	// Long enough for raft to have begun to wait for seconds between its tries.
	until := time.Now().Add(4 * time.Second)
	for i := 100; time.Now().Before(until); i++ {
		g.say(i)
		eventually(t, time.Second, "a moment passes", func() bool { return time.Now().UnixMilli()%50 < 10 })
	}
	g.wires.heal(away.cfg.ID)
	leader = g.leader()
	began, late := time.Now(), lateness.Measure()
	eventually(t, electionLimit, "it has caught up", func() bool { return away.tape.text() == leader.tape.text() })
	took, ours := time.Since(began), late()
	t.Logf("caught up after %s, of which the machine kept all three waiting %s", took.Round(time.Millisecond), ours.Round(time.Millisecond))
	if took > 2*time.Second+ours {
		t.Error("it waited for one of raft's tries")
	}
}

func TestALeaderThatStopsHandsOver(t *testing.T) {
	g := three(t)
	leader := g.leader()
	say(t, leader.Node, 0, 5)
	began := time.Now()
	delete(g.all, leader.cfg.ID)
	if err := leader.end(); err != nil {
		t.Fatal(err)
	}
	next := g.leader()
	if n := len(next.Members()); n != 3 {
		t.Fatalf("a stop made %d members of 3", n)
	}
	t.Logf("stopped and handed over in %s", time.Since(began).Round(time.Millisecond))
}

func TestALeaderThatRemovesItselfStops(t *testing.T) {
	g := three(t)
	leader := g.leader()
	if err := leader.Remove(t.Context(), leader.cfg.ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "it stops", leader.isClosed)
	if err := leader.end(); !errors.Is(err, ErrRemoved) {
		t.Fatal(err)
	}
	delete(g.all, leader.cfg.ID)
	next := g.leader()
	if n := len(next.Members()); n != 2 {
		t.Fatalf("%d members", n)
	}
	say(t, next.Node, 50, 51)
}

// raft tells a follower of its removal where it can, and it may be away. It must
// then disturb nobody, and may come back.
func TestAMemberThatMissedItsRemovalDisturbsNobody(t *testing.T) {
	g := three(t)
	leader := g.leader()
	gone := g.all[ident.NodeID{2}]
	if gone == leader {
		gone = g.all[ident.NodeID{3}]
	}
	eventually(t, electionLimit, "it knows that it has a vote", func() bool {
		return slices.ContainsFunc(gone.Members(), func(m Member) bool { return m.ID == gone.cfg.ID && m.Voter })
	})
	g.wires.cut(gone.cfg.ID)
	g.lead("takes it out", func(leader *member) error { return leader.Remove(t.Context(), gone.cfg.ID) })
	g.wires.heal(gone.cfg.ID)
	term := gone.Status().Term
	eventually(t, electionLimit, "it misses its leader", func() bool { return gone.Heard() > 3*clusterTimeout })
	for i := range 10 {
		g.say(i)
	}
	// Who disturbs others asks for votes in terms of its own making.
	if now := gone.Status(); now.Leads || now.Term != term {
		t.Fatalf("%+v after term %d", now, term)
	}
	g.lead("takes it in again", func(leader *member) error { return leader.Add(t.Context(), gone.cfg.ID, gone.Addr()) })
	leader = g.leader()
	g.same(leader.tape.text())
}

func (n *Node) isClosed() bool {
	select {
	case <-n.closed:
		return true
	default:
		return false
	}
}

func TestAMemberCatchesUpBySnapshot(t *testing.T) {
	g := newGroup(t)
	first := g.start(ident.NodeID{1}, t.TempDir(), nil)
	for i := range 3 {
		say(t, first.Node, i*30, i*30+30)
		if err := first.TakeSnapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	second := g.start(ident.NodeID{2}, t.TempDir(), nil)
	g.join(first, second)
	g.same(first.tape.text())
	if err := second.end(); err != nil {
		t.Fatal(err)
	}
	delete(g.all, second.cfg.ID)
	r, err := Verify(second.cfg.Dir, 0, second.cfg.Checks)
	if err != nil {
		t.Fatal(err)
	}
	if r.Snapshot == 0 || r.First != r.Snapshot+1 || r.Owner != second.cfg.ID {
		t.Fatalf("its log does not begin behind the leader's snapshot: %+v", r)
	}
}

// slowDisk hangs when told.
type slowDisk struct {
	backing
	hang chan struct{} // nil: not
	mu   sync.Mutex
}

func (d *slowDisk) StoreLogs(l []*raft.Log) error {
	d.mu.Lock()
	hang := d.hang
	d.mu.Unlock()
	if hang != nil {
		<-hang
	}
	return d.backing.StoreLogs(l)
}

func TestALeaderWhoseDiskHangsIsFollowedByAnother(t *testing.T) {
	g := newGroup(t)
	slow := &slowDisk{}
	first := g.start(ident.NodeID{1}, t.TempDir(), func(_ *Config, n *Node) {
		n.wrap = func(b backing) backing { slow.backing = b; return slow }
	})
	for i := byte(2); i <= 3; i++ {
		g.join(first, g.start(ident.NodeID{i}, t.TempDir(), nil))
	}
	say(t, first.Node, 0, 2)
	hang := make(chan struct{})
	slow.mu.Lock()
	slow.hang = hang
	slow.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	var e *ApplyError
	if _, err := first.Apply(ctx, Command{Bytes: []byte("say hanging")}); !errors.As(err, &e) || e.Outcome != Unknown {
		t.Fatal(err)
	}
	delete(g.all, first.cfg.ID)
	began := time.Now()
	next := g.leader()
	t.Logf("another led after %s", time.Since(began).Round(time.Millisecond))
	say(t, next.Node, 2, 4)
	slow.mu.Lock()
	slow.hang = nil
	slow.mu.Unlock()
	close(hang)
	g.all[first.cfg.ID] = first
	eventually(t, electionLimit, "it follows again", func() bool { return !first.Status().Leads && first.tape.text() == next.tape.text() })
	if strings.Contains(next.tape.text(), "hanging") {
		t.Fatal("what no majority had was kept")
	}
}

func TestConnectionsOfStrangersAreRefused(t *testing.T) {
	g := three(t)
	leader := g.leader()
	right := preamble{Cluster: testCluster, Source: ident.NodeID{2}, Target: leader.cfg.ID}
	wrongCluster, wrongTarget := right, right
	wrongCluster.Cluster[0]++
	wrongTarget.Target[0]++
	wrongVersion := right.bytes()
	wrongVersion[4]++
	for name, b := range map[string][]byte{
		"another cluster": wrongCluster.bytes(), "another node": wrongTarget.bytes(), "another version": wrongVersion,
		"something else": []byte(strings.Repeat("GET / HTTP/1.1\r\n", 9)), "the right one": right.bytes(),
	} {
		conn, err := net.Dial("tcp", leader.Addr())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(append(b, 0x7F)); err != nil { // 0x7F: no call of raft's
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(preambleLimit / 2)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); err == nil || isTimeout(err) {
			t.Errorf("%s: %v", name, err)
		}
		_ = conn.Close() // it is closed at the other end
	}
	s := &stream{self: leader.cfg.ID, cluster: leader.cfg.Cluster}
	if s.takes(right) != nil || s.takes(wrongCluster) == nil || s.takes(wrongTarget) == nil {
		t.Error("the wrong ones are taken, or the right one is not")
	}
}

func TestAJoinersFolderIsItsOwn(t *testing.T) {
	dir := t.TempDir()
	g := newGroup(t)
	m := g.start(ident.NodeID{2}, dir, nil)
	if err := m.end(); err != nil {
		t.Fatal(err)
	}
	cfg, _ := tapeConfig(dir)
	if r, err := Verify(dir, 0, cfg.Checks); err != nil || !r.Exists || r.Last != 0 || r.Owner != (ident.NodeID{2}) {
		t.Fatal(r, err)
	}
	if _, err := Verify(dir, 1, cfg.Checks); err == nil {
		t.Fatal("an empty store beside what was acted on passed")
	}
	cfg.ID, cfg.Join = ident.NodeID{9}, true
	if err := New(cfg).Open(t.Context()); err == nil {
		t.Fatal("another node opened it")
	}
	cfg.ID = ident.NodeID{2}
	n := New(cfg)
	if err := n.Open(t.Context()); err != nil { // it waits on, and founds nothing
		t.Fatal(err)
	}
	if s := n.Status(); s.Leads || s.Last != 0 || len(n.Members()) != 0 {
		t.Fatalf("%+v", s)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
}

// What is committed is told by commands alone, whatever raft writes between them: those
// are what the machine comes to.
func TestWhatIsCommittedIsTheLatestCommand(t *testing.T) {
	g := three(t)
	g.say(7)
	var leader *member
	g.lead("says what is committed", func(l *member) error {
		leader = l
		for range 3 {
			if err := l.Barrier(t.Context()); err != nil {
				return err
			}
		}
		at := l.tape.at()
		if got, err := l.Committed(t.Context()); err != nil || got != at || at > l.Status().Last-3 {
			t.Errorf("entry %d of %d, %v; the machine is at %d", got, l.Status().Last, err, at)
		}
		return nil
	})
	if err := leader.end(); err != nil {
		t.Fatal(err)
	}
	delete(g.all, leader.cfg.ID)
	if _, err := leader.Committed(t.Context()); err == nil {
		t.Error("a node that is closed knows what is committed")
	}
}

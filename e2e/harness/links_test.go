package harness

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// bound of what must happen at once.
const bound = 10 * time.Second

// wire is two nodes, a and b, that know one another through links only. Node b
// answers whoever calls it.
type wire struct {
	*Links
	t    *testing.T
	addr string // where b listens
	in   chan *net.TCPConn
}

func newWire(t *testing.T) *wire {
	t.Helper()
	w := &wire{Links: NewLinks(t), t: t, in: make(chan *net.TCPConn, 8)}
	w.addr = w.listen()
	w.Named("id-a", "a")
	w.Named("id-b", "b")
	w.Node("b", w.addr)
	return w
}

// listen takes connections until the test ends.
func (w *wire) listen() (addr string) {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.in <- c.(*net.TCPConn)
		}
	})
	w.t.Cleanup(func() {
		_ = l.Close()
		wait.Wait()
	})
	return l.Addr().String()
}

// dial calls b from a and waits for nothing.
func (w *wire) dial(kind string) *net.TCPConn {
	w.t.Helper()
	c, err := net.Dial("tcp", w.Addr)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	if _, err := fmt.Fprintf(c, "id-a %s %s\n", kind, w.addr); err != nil {
		w.t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

// connect is dial and the other end.
func (w *wire) connect(kind string) (a, b *net.TCPConn) {
	w.t.Helper()
	a = w.dial(kind)
	return a, w.taken()
}

func (w *wire) taken() *net.TCPConn {
	w.t.Helper()
	select {
	case c := <-w.in:
		w.t.Cleanup(func() { _ = c.Close() })
		return c
	case <-time.After(bound):
		w.t.Fatal("the connection does not arrive")
		return nil
	}
}

// says sends a word and wants it at the other end.
func says(t *testing.T, from, to *net.TCPConn, word string) {
	t.Helper()
	send(t, from, word)
	hears(t, to, word)
}

func send(t *testing.T, from *net.TCPConn, word string) {
	t.Helper()
	if _, err := io.WriteString(from, word); err != nil {
		t.Fatal(err)
	}
}

func hears(t *testing.T, to *net.TCPConn, word string) {
	t.Helper()
	_ = to.SetReadDeadline(time.Now().Add(bound))
	b := make([]byte, len(word))
	if _, err := io.ReadFull(to, b); err != nil || string(b) != word {
		t.Fatalf("heard %q, %v, want %q", b, err, word)
	}
}

// silent wants nothing to arrive for a moment.
func silent(t *testing.T, to *net.TCPConn) {
	t.Helper()
	_ = to.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	var b [1]byte
	if n, err := to.Read(b[:]); n > 0 || !timedOut(err) {
		t.Fatalf("heard %q, %v", b[:n], err)
	}
}

func timedOut(err error) bool {
	var x net.Error
	return errors.As(err, &x) && x.Timeout()
}

func TestLinksPassOnBothWays(t *testing.T) {
	w := newWire(t)
	a, b := w.connect("rpc")
	says(t, a, b, "hello")
	says(t, b, a, "hello yourself")
	if n := w.Opened("a", "b", "rpc"); n != 1 {
		t.Errorf("%d connections counted", n)
	}
	_ = a.CloseWrite()
	_ = b.SetReadDeadline(time.Now().Add(bound))
	if _, err := b.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the end arrives as %v", err)
	}
	says(t, b, a, "half is open still")
}

func TestAHeldDirectionKeepsItsBytesAndTheOtherFlows(t *testing.T) {
	w := newWire(t)
	a, b := w.connect("rpc")
	w.Hold("a", "b")
	send(t, a, "late")
	silent(t, b)
	says(t, b, a, "in time")
	_ = a.CloseWrite()
	silent(t, b) // nor does the end arrive
	w.Heal()
	hears(t, b, "late")
	if _, err := b.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the end arrives as %v", err)
	}
}

func TestTheWayBackIsHeldByItsOwnDirection(t *testing.T) {
	w := newWire(t)
	a, b := w.connect("rpc")
	w.Hold("b", "a")
	says(t, a, b, "in time")
	send(t, b, "late")
	silent(t, a)
	w.Heal()
	hears(t, a, "late")
}

func TestANewConnectionNeedsBothDirections(t *testing.T) {
	for _, held := range [][2]string{{"a", "b"}, {"b", "a"}} {
		w := newWire(t)
		w.Hold(held[0], held[1])
		a := w.dial("rpc")
		send(t, a, "early")
		select {
		case <-w.in:
			t.Fatalf("connected although %s to %s is held", held[0], held[1])
		case <-time.After(50 * time.Millisecond):
		}
		w.Heal()
		b := w.taken()
		hears(t, b, "early")
		says(t, b, a, "at last")
	}
}

func TestAConnectionThatIsGivenUpWhileItHangsNeverArrives(t *testing.T) {
	w := newWire(t)
	w.Cut("a", "b")
	given := w.dial("rpc")
	send(t, given, "ghost")
	patient := w.dial("rpc")
	send(t, patient, "patient")
	_ = given.Close()
	Await(t, bound, "both hang", func() bool { return w.Opened("a", "b", "rpc") == 2 })
	time.Sleep(20 * time.Millisecond) // for the end to arrive at the proxy
	w.Heal()
	hears(t, w.taken(), "patient")
	select {
	case <-w.in:
		t.Error("a connection arrived that had been given up")
	case <-time.After(50 * time.Millisecond):
	}
}

func TestRulesAreForTheirNodesAndKindsAlone(t *testing.T) {
	w := newWire(t)
	raftA, raftB := w.connect("raft")
	rpcA, rpcB := w.connect("rpc")
	w.Cut("a", "b", "raft")
	w.Cut("a", "c")
	w.Isolate("d")
	send(t, raftA, "x")
	silent(t, raftB)
	says(t, rpcA, rpcB, "data")
	says(t, rpcB, rpcA, "data")
	w.Heal()
	w.Isolate("b")
	send(t, rpcB, "x")
	silent(t, rpcA)
	w.Heal()
	w.Isolate("a")
	w.Node("a", w.addr) // then a calls itself, over no wire
	self, selfB := w.connect("rpc")
	says(t, self, selfB, "to myself")
}

func TestARefusedLinkIsResetAndOpensNoMore(t *testing.T) {
	w := newWire(t)
	a, b := w.connect("rpc")
	w.Refuse("b", "a", "rpc")
	for _, end := range []*net.TCPConn{a, b, w.dial("rpc")} {
		_ = end.SetReadDeadline(time.Now().Add(bound))
		if _, err := end.Read(make([]byte, 1)); err == nil || timedOut(err) {
			t.Errorf("refused, and %v", err)
		}
	}
	w.Heal()
	a, _ = w.connect("rpc")
	w.Reset("a", "b")
	_ = a.SetReadDeadline(time.Now().Add(bound))
	if _, err := a.Read(make([]byte, 1)); err == nil || timedOut(err) {
		t.Errorf("reset, and %v", err)
	}
	a, b = w.connect("rpc")
	says(t, a, b, "again")
}

func TestASlowLinkDelaysAndCarriesAllInOrder(t *testing.T) {
	const delay = 100 * time.Millisecond
	w := newWire(t)
	a, b := w.connect("rpc")
	w.Slow("a", "b", delay)
	begin := time.Now()
	says(t, a, b, "one")
	if took := time.Since(begin); took < delay {
		t.Errorf("arrived after %s", took)
	}
	begin = time.Now()
	for i := range 20 {
		send(t, a, fmt.Sprintf("%03d", i))
	}
	for i := range 20 {
		hears(t, b, fmt.Sprintf("%03d", i))
	}
	if took := time.Since(begin); took < delay || took > 10*delay {
		t.Errorf("20 at once took %s", took)
	}
	begin = time.Now()
	says(t, b, a, "the way back is quick")
	if took := time.Since(begin); took >= delay {
		t.Errorf("the way back took %s", took)
	}
}

func TestAnEndThatDiesIsHeardOfByTheOther(t *testing.T) {
	w := newWire(t)
	a, b := w.connect("rpc")
	_ = b.SetLinger(0)
	_ = b.Close()
	_ = a.SetReadDeadline(time.Now().Add(bound))
	if _, err := a.Read(make([]byte, 1)); err == nil || timedOut(err) {
		t.Errorf("the other end died, and %v", err)
	}
	w.addr = "127.0.0.1:1" // nobody listens there
	c := w.dial("rpc")
	_ = c.SetReadDeadline(time.Now().Add(bound))
	if _, err := c.Read(make([]byte, 1)); err == nil || timedOut(err) {
		t.Errorf("nobody listens, and %v", err)
	}
}

func TestDatagramsPassAreLostAndAreDelayed(t *testing.T) {
	w := newWire(t)
	to, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	w.Node("b", to.LocalAddr().String())
	from, err := net.Dial("udp", w.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	packet := func(word string) {
		if _, err := fmt.Fprintf(from, "id-a gossip %s\n%s", to.LocalAddr(), word); err != nil {
			t.Fatal(err)
		}
	}
	arrives := func(within time.Duration) string {
		_ = to.SetReadDeadline(time.Now().Add(within))
		b := make([]byte, 100)
		n, _, err := to.ReadFrom(b)
		if err != nil {
			return ""
		}
		return string(b[:n])
	}
	packet("one\ntwo")
	if got := arrives(bound); got != "one\ntwo" {
		t.Errorf("arrived %q", got)
	}
	w.Hold("a", "b")
	packet("lost")
	if got := arrives(50 * time.Millisecond); got != "" {
		t.Errorf("arrived %q", got)
	}
	w.Heal()
	w.Hold("b", "a") // the other direction
	packet("passes")
	if got := arrives(bound); got != "passes" {
		t.Errorf("arrived %q", got)
	}
	w.Heal()
	w.Slow("a", "b", 50*time.Millisecond)
	begin := time.Now()
	packet("late")
	if got := arrives(bound); got != "late" || time.Since(begin) < 50*time.Millisecond {
		t.Errorf("arrived %q after %s", got, time.Since(begin))
	}
}

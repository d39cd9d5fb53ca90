package harness

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// Links is every connection between the nodes of a cluster in the hands of a
// test. A node built with the tag faults dials it in place of any other node
// (TIDEWIRE_TEST_LINKS names it), and says first who calls whom about what:
//
//	<id of the caller> <kind> <address>\n
//
// What follows goes to that address and back, as the rules of the moment allow. A
// connection that nobody takes there is reset before anything comes back. A
// datagram begins with the same line.
//
// A rule holds for one direction. Bytes that are held are kept, not lost, as TCP
// keeps them: they arrive when the link heals, if both ends are there still, and
// so does the end of a connection. A new connection needs both directions.
type Links struct {
	Addr string // host:port, of TCP and UDP

	tcp  net.Listener
	udp  net.PacketConn
	wait sync.WaitGroup
	done chan struct{}

	mu      sync.Mutex
	names   map[string]string // of nodes, by id
	nodes   map[string]string // names of nodes, by address
	rules   []rule
	changed chan struct{} // closed when rules change
	open    map[*link]bool
	opened  map[string]int // by "source>target kind"
}

// rule is what happens to bytes from one node to another.
type rule struct {
	from, to, kind string // "": any
	refuse, hold   bool
	delay          time.Duration
}

// NewLinks begins with links that do nothing but pass on; they end with the test.
func NewLinks(t testing.TB) *Links {
	t.Helper()
	l := &Links{
		done: make(chan struct{}), changed: make(chan struct{}), open: map[*link]bool{},
		names: map[string]string{}, nodes: map[string]string{}, opened: map[string]int{},
	}
	// One number for both; the system knows which are free of TCP alone.
	for try := 0; ; try++ {
		tcp, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		udp, err := net.ListenPacket("udp", tcp.Addr().String())
		if err == nil {
			l.tcp, l.udp, l.Addr = tcp, udp, tcp.Addr().String()
			break
		}
		_ = tcp.Close() // another one is tried
		if try == 20 {
			t.Fatal(err)
		}
	}
	l.wait.Go(l.accept)
	l.wait.Go(l.datagrams)
	t.Cleanup(func() {
		close(l.done)
		_ = l.tcp.Close() // accept ends
		_ = l.udp.Close() // datagrams end
		l.mu.Lock()
		for c := range l.open {
			c.reset()
		}
		l.mu.Unlock()
		l.wait.Wait()
	})
	return l
}

// Node says that a node listens on an address. Addresses that nobody has
// claimed belong to a node without a name, to which only rules for any apply.
func (l *Links) Node(name string, addresses ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range addresses {
		l.nodes[a] = name
	}
}

// Named says what the node with an id is called.
func (l *Links) Named(id, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names[id] = name
}

// Opened counts the connections that were opened from one node to another.
func (l *Links) Opened(from, to, kind string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.opened[from+">"+to+" "+kind]
}

// Hold keeps all bytes from one node to another; "" is any node. Without kinds
// it does so for all of them.
func (l *Links) Hold(from, to string, kinds ...string) {
	l.add(rule{from: from, to: to, hold: true}, kinds)
}

// Cut is Hold in both directions.
func (l *Links) Cut(a, b string, kinds ...string) {
	l.Hold(a, b, kinds...)
	l.Hold(b, a, kinds...)
}

// Isolate cuts a node off all others.
func (l *Links) Isolate(name string) { l.Cut(name, "") }

// Slow delays all bytes from one node to another.
func (l *Links) Slow(from, to string, by time.Duration, kinds ...string) {
	l.add(rule{from: from, to: to, delay: by}, kinds)
}

// Refuse resets the connections between two nodes and refuses new ones, whoever
// opens them.
func (l *Links) Refuse(a, b string, kinds ...string) {
	l.add(rule{from: a, to: b, refuse: true}, kinds)
	l.add(rule{from: b, to: a, refuse: true}, kinds)
	l.Reset(a, b, kinds...)
}

// Reset ends the connections between two nodes; new ones may be opened.
func (l *Links) Reset(a, b string, kinds ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		between := rule{from: a, to: b}
		back := rule{from: b, to: a}
		for _, kind := range orAny(kinds) {
			between.kind, back.kind = kind, kind
			if l.matchesLocked(between, c, true) || l.matchesLocked(back, c, true) {
				c.reset()
			}
		}
	}
}

// Heal takes back all rules.
func (l *Links) Heal() { l.set(nil) }

func orAny(kinds []string) []string {
	if len(kinds) == 0 {
		return []string{""}
	}
	return kinds
}

func (l *Links) add(r rule, kinds []string) {
	l.mu.Lock()
	rules := l.rules
	l.mu.Unlock()
	for _, kind := range orAny(kinds) {
		r.kind = kind
		rules = append(rules[:len(rules):len(rules)], r)
	}
	l.set(rules)
}

func (l *Links) set(rules []rule) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rules = rules
	close(l.changed)
	l.changed = make(chan struct{})
}

// matchesLocked says whether a rule is about a connection's bytes: those from
// the node that opened it, or those that come back.
func (l *Links) matchesLocked(r rule, c *link, forward bool) bool {
	from, to := l.names[c.source], l.nodes[c.address]
	if !forward {
		from, to = to, from
	}
	return (r.from == "" || r.from == from) && (r.to == "" || r.to == to) && (r.kind == "" || r.kind == c.kind) &&
		!(from != "" && from == to) // a node that calls itself uses no wire
}

// state is what the rules of the moment say of one direction of a connection.
func (l *Links) state(c *link, forward bool) (s rule, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.rules {
		if l.matchesLocked(r, c, forward) {
			s.hold = s.hold || r.hold
			s.refuse = s.refuse || r.refuse
			s.delay += r.delay
		}
	}
	return s, l.changed
}

// pass waits until one direction is not held; false: the links have ended.
func (l *Links) pass(c *link, forward bool) bool {
	for {
		s, changed := l.state(c, forward)
		if !s.hold {
			return true
		}
		select {
		case <-changed:
		case <-c.gone:
			return false
		case <-l.done:
			return false
		}
	}
}

func (l *Links) accept() {
	for {
		c, err := l.tcp.Accept()
		if err != nil {
			return
		}
		l.wait.Go(func() { l.serve(c.(*net.TCPConn)) })
	}
}

// mostHead bounds the line that begins a connection.
const mostHead = 512

// readHead reads the line that says who calls whom.
func readHead(r *bufio.Reader) (source, kind, address string, err error) {
	var head []byte
	for len(head) < mostHead {
		b, err := r.ReadByte()
		if err != nil {
			return "", "", "", err
		}
		if b == '\n' {
			return parseHead(string(head))
		}
		head = append(head, b)
	}
	return "", "", "", errors.New("a connection did not say whom it is for")
}

func parseHead(line string) (source, kind, address string, err error) {
	words := strings.Fields(line)
	if len(words) != 3 {
		return "", "", "", fmt.Errorf("%q is no caller, kind and address", line)
	}
	return words[0], words[1], words[2], nil
}

func (l *Links) serve(near *net.TCPConn) {
	in := bufio.NewReader(near)
	source, kind, address, err := readHead(in)
	if err != nil {
		_ = near.Close() // nobody to pass it on to
		return
	}
	c := &link{source: source, kind: kind, address: address, near: near, gone: make(chan struct{})}
	l.mu.Lock()
	l.open[c] = true
	l.opened[l.names[source]+">"+l.nodes[address]+" "+kind]++
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.open, c)
		l.mu.Unlock()
		c.reset() // what is left of it
	}()
	s, _ := l.state(c, true)
	if s.refuse || !l.pass(c, true) || !l.pass(c, false) || c.abandoned() {
		return
	}
	far, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		return
	}
	if !c.reached(far.(*net.TCPConn)) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { l.pump(c, true, in, c.far) })
	both.Go(func() { l.pump(c, false, c.far, near) })
	both.Wait()
}

// datagrams passes on packets. One that is held is lost, as packets are.
func (l *Links) datagrams() {
	buffer := make([]byte, 64<<10)
	for {
		n, _, err := l.udp.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // of one packet, such as that nobody took the last one
		}
		head, payload, ok := strings.Cut(string(buffer[:n]), "\n")
		source, kind, address, err := parseHead(head)
		if !ok || err != nil {
			continue
		}
		s, _ := l.state(&link{source: source, kind: kind, address: address}, true)
		to, err := net.ResolveUDPAddr("udp", address)
		if s.hold || s.refuse || err != nil {
			continue
		}
		send := func() { _, _ = l.udp.WriteTo([]byte(payload), to) } // a packet may be lost
		if s.delay == 0 {
			send()
			continue
		}
		l.wait.Go(func() {
			if l.sleep(s.delay, nil) {
				send()
			}
		})
	}
}

// sleep waits; false: the links or the connection ended first.
func (l *Links) sleep(d time.Duration, gone <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-gone:
		return false
	case <-l.done:
		return false
	}
}

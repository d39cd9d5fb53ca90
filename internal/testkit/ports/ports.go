package ports

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"testing"
)

const (
	host = "127.0.0.1"
	// guardHost is where a port is held for whoever has it. It is another address of
	// the loopback, so that the port itself stays free, and every test of the machine
	// asks there first, those of the SDK too (sdk-js/test/integration/ports.ts).
	guardHost = "127.0.0.2"

	lowest, highest = 10_000, 65_535 // below are those that services are known by
	// fewest is how many ports outside of the kernel's range are enough to pick from.
	fewest = 1_000
	tries  = 1_000
)

// span is some ports, both ends among them.
type span struct{ from, to int }

func (s span) size() int { return max(0, s.to-s.from+1) }

func (s span) has(port int) bool { return s.from <= port && port <= s.to }

// Keep gives an address, host:port, that belongs to the test until it ends, over TCP and
// UDP, whether something listens there or not: no other test gets it, and no outgoing
// connection leaves from it.
func Keep(t testing.TB) string {
	t.Helper()
	all := pickable(outgoing(t))
	for range tries {
		port := pick(all, rand.IntN)
		guard, err := take(port)
		if err != nil {
			continue // somebody's
		}
		t.Cleanup(func() { _ = guard.Close() })
		return address(host, port)
	}
	t.Fatalf("none of %d ports was free", tries)
	return ""
}

// outgoing are the ports that the kernel gives to outgoing connections, and to those who
// ask for any.
func outgoing(t testing.TB) (s span) {
	t.Helper()
	b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err == nil {
		_, err = fmt.Sscan(string(b), &s.from, &s.to)
	}
	if err != nil {
		t.Fatalf("the range of outgoing connections: %v", err)
	}
	return s
}

// pickable is what lies outside of the kernel's range. Where that leaves next to nothing
// it is everything: the guard alone then keeps outgoing TCP connections away, because the
// kernel passes over ports that are bound at any address.
func pickable(kernel span) []span {
	below := span{lowest, min(kernel.from-1, highest)}
	above := span{max(kernel.to+1, lowest), highest}
	if below.size()+above.size() < fewest {
		return []span{{lowest, highest}}
	}
	return []span{below, above}
}

// pick draws one of some ports, of which there are any.
func pick(all []span, intN func(int) int) int {
	n := 0
	for _, s := range all {
		n += s.size()
	}
	i := intN(n)
	for _, s := range all {
		if i < s.size() {
			return s.from + i
		}
		i -= s.size()
	}
	panic("a draw is below the number of all")
}

// take holds a port that nobody has.
func take(port int) (guard net.Listener, err error) {
	guard, err = net.Listen("tcp", address(guardHost, port))
	if err != nil {
		return nil, err
	}
	if err := free(port); err != nil {
		_ = guard.Close() // another one is tried
		return nil, err
	}
	return guard, nil
}

// free looks whether anything listens at a port, such as a service that knows of no guard.
func free(port int) error {
	tcp, err := net.Listen("tcp", address(host, port))
	if err != nil {
		return err
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", address(host, port))
	if err != nil {
		return err
	}
	return udp.Close()
}

func address(host string, port int) string { return fmt.Sprintf("%s:%d", host, port) }

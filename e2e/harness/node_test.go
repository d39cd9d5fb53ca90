package harness

import (
	"fmt"
	"maps"
	"net"
	"os"
	"strconv"
	"testing"
)

// TestANodeThatIsDownKeepsItsPorts holds the ports at which a node comes back against the
// range from which the kernel takes those of outgoing connections: one of these would have
// it as soon as the node is down.
func TestANodeThatIsDownKeepsItsPorts(t *testing.T) {
	b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		t.Fatal(err)
	}
	var from, to int
	if _, err := fmt.Sscan(string(b), &from, &to); err != nil {
		t.Fatal(err)
	}
	if to-from > 50_000 {
		from, to = 0, -1 // nothing lies outside
	}
	n := Start(t, Options{Fixed: true})
	before := maps.Clone(n.Listeners)
	for name, address := range before {
		_, text, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		if port, err := strconv.Atoi(text); err != nil || from <= port && port <= to {
			t.Errorf("%s listens on %s, a port of outgoing connections (%v)", name, address, err)
		}
	}
	n.Kill()
	if err := n.Run(); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(before, n.Listeners) || len(before) != len(listeners) {
		t.Errorf("%v, then %v", before, n.Listeners)
	}
}

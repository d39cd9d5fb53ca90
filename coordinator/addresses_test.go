//go:build !race

package coordinator_test

import (
	"testing"
	"time"

	"tidewire/coordinator"
	"tidewire/internal/ident"
)

// Machines that got one another's addresses, as containers do: the configuration has
// no address twice, and yet it comes to say where each of them is. Else nobody else
// could ever come in.
//
// Not under the race detector: raft (1.7.3, and 1.8.0 too) reads a peer's id without the
// lock under which it writes the new address beside it, in updateLastAppended. The id
// stays the same, so nothing comes of it, but the detector now and then sees both.
func TestMembersComeBackAtOneAnothersAddresses(t *testing.T) {
	for name, moved := range map[string][]int{"two swap": {0, 2, 1}, "all go round": {1, 2, 0}} {
		t.Run(name, func(t *testing.T) {
			n := newNet()
			var dirs, addresses [3]string
			var stops [3]func()
			all := make([]*coordinator.Coordinator, 3)
			for i := range all {
				dirs[i] = t.TempDir()
				all[i], stops[i] = n.run(t, ident.NodeID{byte(i + 1)}, dirs[i], func(c *coordinator.Config) { c.Locate = n.locate })
				addresses[i] = all[i].Addr()
			}
			eventually(t, 10*time.Second, "all three vote", func() bool { return len(all[0].Status().Voters) == 3 })
			for _, stop := range stops {
				stop()
			}
			for i := range all {
				all[i], _ = n.run(t, ident.NodeID{byte(i + 1)}, dirs[i], func(c *coordinator.Config) {
					c.Found, c.Locate, c.Bind = false, n.locate, addresses[moved[i]]
				})
			}
			late, _ := n.run(t, ident.NodeID{4}, t.TempDir(), func(c *coordinator.Config) { c.Locate = n.locate })
			eventually(t, 10*time.Second, "a fourth comes in", func() bool { return len(late.Status().Voters) == 4 })
		})
	}
}

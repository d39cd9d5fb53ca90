package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"tidewire/e2e/harness"
)

// mishap is one step of a schedule: what befalls a node, and for how long.
type mishap struct {
	what  string
	node  int // of Members
	with  int // the other end of a link
	lasts time.Duration
}

func (m mishap) String() string {
	return fmt.Sprintf("%s n%d/n%d %s", m.what, m.node+1, m.with+1, m.lasts)
}

// mishaps are what a schedule is made of.
var mishaps = [...]string{"kill", "kill the leading coordinator", "stop", "pause", "isolate", "hold", "cut", "refuse", "slow", "drain", "kill two"}

// schedule draws steps: the same ones from the same seed.
func schedule(r *rand.Rand, nodes, steps int) (all []mishap) {
	for range steps {
		m := mishap{what: mishaps[r.IntN(len(mishaps))], node: r.IntN(nodes), lasts: time.Duration(r.Int64N(int64(4*time.Second))) + 50*time.Millisecond}
		m.with = (m.node + 1 + r.IntN(nodes-1)) % nodes
		all = append(all, m)
	}
	return all
}

// befall lets one step happen to a cluster, and ends it.
func befall(t *testing.T, c *harness.Cluster, m mishap) {
	t.Helper()
	node, other := c.Members[m.node], c.Members[m.with]
	wait := func() { pause(t.Context(), m.lasts) }
	switch m.what {
	case "kill":
		node.Kill()
		wait()
		c.Run(node)
	case "kill the leading coordinator":
		leader := c.CoordinatorLeader()
		leader.Kill()
		wait()
		c.Run(leader)
	case "kill two":
		node.Kill()
		pause(t.Context(), m.lasts/4)
		other.Kill()
		wait()
		c.Run(other, node)
	case "stop":
		if err := node.Stop(); err != nil {
			t.Errorf("%s: %v", node.Name, err)
		}
		wait()
		c.Run(node)
	case "pause":
		node.Pause()
		wait()
		node.Continue()
	case "isolate":
		c.Links.Isolate(node.Name)
		wait()
	case "hold":
		c.Links.Hold(node.Name, other.Name)
		wait()
	case "cut":
		c.Links.Cut(node.Name, other.Name)
		wait()
	case "refuse":
		c.Links.Refuse(node.Name, other.Name)
		wait()
	case "slow":
		c.Links.Slow(node.Name, "", m.lasts/40)
		wait()
	case "drain":
		if _, stderr, code := other.CLI(t.Context(), nil, "drain", node.Name); code != 0 {
			t.Errorf("drain %s: exit %d: %s", node.Name, code, stderr)
		}
		wait()
		if _, stderr, code := other.CLI(t.Context(), nil, "drain", node.Name, "--cancel"); code != 0 {
			t.Errorf("drain %s --cancel: exit %d: %s", node.Name, code, stderr)
		}
	default:
		t.Fatalf("nobody knows what %q is", m.what)
	}
	c.Links.Heal()
}

// TestRandomMishaps lets one thing after the other befall a cluster, by a schedule
// that its seed gives again, and wants it to be whole after each.
func TestRandomMishaps(t *testing.T) {
	timed(t)
	steps := 2
	if harness.Soak() {
		steps = 60
	}
	all := schedule(random(t), 3, steps)
	t.Logf("the schedule: %v", all)
	c := harness.StartCluster(t, harness.ClusterOptions{Links: true})
	w := startCrew(t, c, crewOptions{
		topic: "mishaps", readers: 20, bound: time.Duration(steps)*time.Minute + patience,
		// Two of three may be gone, or a leader without its followers.
		mayRefuse: hesitant,
	})
	for i, m := range all {
		s := w.begin("%d of %d: %s", i+1, steps, m)
		befall(t, c, m)
		c.AwaitWhole(patience, "mishaps")
		s.end(class{"all partitions", anyPartition, 0})
	}
	w.finish()
	w.identical()
}

func TestAScheduleIsItsSeeds(t *testing.T) {
	of := func(seed uint64) string { return fmt.Sprint(schedule(rand.New(rand.NewPCG(seed, 1)), 3, 200)) }
	if again := of(1); again != of(1) || again == of(2) {
		t.Error("a seed gives other steps each time, or all seeds the same")
	}
	for _, what := range mishaps {
		if !strings.Contains(of(1), what+" n") {
			t.Errorf("%q never happens", what)
		}
	}
	for _, m := range schedule(rand.New(rand.NewPCG(1, 1)), 3, 200) {
		if m.node == m.with || m.node > 2 || m.with > 2 || m.lasts <= 0 {
			t.Errorf("a step that cannot be: %s", m)
		}
	}
}

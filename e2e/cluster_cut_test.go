package e2e_test

import (
	"slices"
	"testing"
	"time"

	"tidewire/e2e/harness"
)

// sixNodes are three coordinators beside three brokers with gateways, so that a
// broker can lose the ones and keep the others.
func sixNodes() []string {
	return []string{"coordinator", "coordinator", "coordinator", "gateway,broker", "gateway,broker", "gateway,broker"}
}

// takenOver bounds the wait where a leader keeps its lease and loses its
// followers (rule C3): 3 × replica_lag and a second.
const takenOver = 7 * time.Second

// whileCut is how long a cut lasts at least.
func whileCut(d time.Duration) time.Duration {
	if harness.Soak() {
		return 3 * d
	}
	return d
}

// hesitant are the refusals of a partition whose leader cannot be reached, or cannot
// reach its followers, until another one leads.
func hesitant(code, _ string) bool {
	return slices.Contains([]string{"leader-unavailable", "not-enough-replicas", "unknown-outcome"}, code)
}

// way does something to the links from one node to another.
type way func(l *harness.Links, from, to string, kinds ...string)

// fromVictim does it to those from a victim to all nodes of a role.
func fromVictim(role string, do way) func(*harness.Links, *harness.Member, *harness.Cluster) {
	return func(l *harness.Links, victim *harness.Member, c *harness.Cluster) {
		for _, m := range c.With(role) {
			do(l, victim.Name, m.Name)
		}
	}
}

// toVictim does it to those from all nodes of a role to a victim.
func toVictim(role string, do way) func(*harness.Links, *harness.Member, *harness.Cluster) {
	return func(l *harness.Links, victim *harness.Member, c *harness.Cluster) {
		for _, m := range c.With(role) {
			do(l, m.Name, victim.Name)
		}
	}
}

// TestCutLinks cuts nodes off one another in every way, each under load, and heals
// the links again: the side that can decide goes on in time, nobody is told
// anything that turns out wrong, and all replicas end the same.
func TestCutLinks(t *testing.T) {
	beside(t)
	for _, x := range []struct {
		name   string
		roles  []string
		short  bool // part of the short form
		lasts  time.Duration
		cut    func(l *harness.Links, victim *harness.Member, c *harness.Cluster)
		refuse func(code, by string) bool // for those outside
		bound  time.Duration              // of producers outside
		dead   bool                       // the victim counts as dead meanwhile
	}{
		{
			name: "a broker from all coordinators", roles: sixNodes(), lasts: 5 * time.Second, bound: fellSilent, dead: true,
			cut: fromVictim("coordinator", (*harness.Links).Cut),
		},
		{
			name: "a leader from its followers", roles: sixNodes(), lasts: 9 * time.Second, refuse: hesitant, bound: takenOver,
			cut: fromVictim("broker", (*harness.Links).Cut),
		},
		{
			// Its leader keeps its lease, and waits for followers that hear nothing.
			name: "a leader's words to its followers", roles: sixNodes(), lasts: 9 * time.Second, refuse: hesitant, bound: takenOver,
			cut: fromVictim("broker", (*harness.Links).Hold),
		},
		{
			name: "the followers' words to a leader", roles: sixNodes(), lasts: 9 * time.Second, refuse: hesitant, bound: takenOver,
			cut: toVictim("broker", (*harness.Links).Hold),
		},
		{
			name: "a broker's words to all coordinators", roles: sixNodes(), lasts: 5 * time.Second, bound: fellSilent, dead: true,
			cut: fromVictim("coordinator", (*harness.Links).Hold),
		},
		{
			name: "all coordinators' words to a broker", roles: sixNodes(), lasts: 5 * time.Second, refuse: hesitant, bound: fellSilent,
			cut: toVictim("coordinator", (*harness.Links).Hold),
		},
		{
			name: "a leader's words to all others", lasts: 9 * time.Second, refuse: hesitant, bound: takenOver, dead: true,
			cut: func(l *harness.Links, victim *harness.Member, _ *harness.Cluster) { l.Hold(victim.Name, "") },
		},
		{
			name: "all words to a leader", lasts: 9 * time.Second, refuse: hesitant, bound: takenOver,
			cut: func(l *harness.Links, victim *harness.Member, _ *harness.Cluster) { l.Hold("", victim.Name) },
		},
		{
			name: "a node from all others", short: true, lasts: 6 * time.Second, bound: fellSilent, dead: true,
			cut: func(l *harness.Links, victim *harness.Member, _ *harness.Cluster) { l.Isolate(victim.Name) },
		},
		{
			name: "a node from all others, refused", lasts: 6 * time.Second, bound: fellSilent, dead: true,
			cut: func(l *harness.Links, victim *harness.Member, _ *harness.Cluster) { l.Refuse(victim.Name, "") },
		},
	} {
		if !x.short && !harness.Soak() {
			continue
		}
		t.Run(x.name, func(t *testing.T) {
			timed(t)
			c := harness.StartCluster(t, harness.ClusterOptions{Roles: x.roles, Links: true})
			victim := c.Others(append([]*harness.Member{c.CoordinatorLeader()}, c.Members[:len(c.Members)-3]...)...)[0]
			w := startCrew(t, c, crewOptions{
				topic: "cuts", readers: 20, mayRefuse: x.refuse,
				at: func(m *harness.Member) bool { return m != victim },
			})
			w.inside(victim, 6)
			c.AwaitSpread(patience, "cuts")
			w.awaitEach(5)
			led, others := leadBy(victim.Name)
			s := w.begin("cut of %s, %s", x.name, victim.Name)
			began := time.Now()
			x.cut(c.Links, victim, c)
			if x.dead {
				w.awaitTruth(victim, "dead")
			}
			s.end(class{"leader cut off", led, x.bound}, class{"follower cut off", others, x.bound})
			pause(t.Context(), whileCut(x.lasts)-time.Since(began))
			w.awaitEach(5)
			s = w.begin("the links heal")
			c.Links.Heal()
			w.awaitTruth(victim, "alive")
			c.AwaitWhole(patience, "cuts")
			s.end(class{"all partitions", anyPartition, fellSilent})
			w.finish()
			w.identical()
		})
	}
}

// TestSlowLinks delays everything between one node and the others: writes take
// longer, and nothing else happens.
func TestSlowLinks(t *testing.T) {
	timed(t)
	delays := []time.Duration{20 * time.Millisecond}
	if harness.Soak() {
		delays = append(delays, 100*time.Millisecond)
	}
	c := harness.StartCluster(t, harness.ClusterOptions{Links: true})
	w := startCrew(t, c, crewOptions{topic: "slow", readers: 20})
	c.AwaitSpread(patience, "slow")
	for _, by := range delays {
		s := w.begin("all words of n1 and to it take %s more", by)
		c.Links.Slow("n1", "", by)
		c.Links.Slow("", "n1", by)
		w.awaitEach(20)
		s.end(class{"all partitions", anyPartition, lostLeader})
		for _, m := range c.Members {
			c.AwaitState(slack(truthIn), m, "alive")
		}
		c.Links.Heal()
	}
	w.finish()
	w.identical()
}

package liveness_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tidewire/coordinator/liveness"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/testkit/scenario"
)

// TestScenarios plays testdata/*.txt. Time passes in wait alone, a Tick every 100 ms;
// nodes that renew do so every 500 ms, before the Tick.
func TestScenarios(t *testing.T) {
	scenario.Run(t, func(t *testing.T) scenario.Player {
		s := &stage{t: t, m: liveness.New(liveness.Config{}), start: time.Unix(1000, 0), renews: map[string]bool{}}
		s.now = s.start
		s.view = &cluster.Snapshot{Nodes: map[ident.NodeID]*cluster.Node{}}
		return s.do
	})
}

type stage struct {
	t          *testing.T
	m          *liveness.Machine
	start, now time.Time
	index      uint64
	view       *cluster.Snapshot
	renews     map[string]bool
	led        bool
}

func id(name string) ident.NodeID { return ident.NodeID{name[0]} }

// life is a node's latest one, or, written a@7, another.
func (s *stage) life(name string) cluster.Life {
	name, epoch, given := strings.Cut(name, "@")
	l := cluster.Life{Node: id(name)}
	if given {
		fmt.Sscan(epoch, &l.Epoch)
	} else if n := s.view.Nodes[l.Node]; n != nil {
		l.Epoch = n.BrokerEpoch
	}
	return l
}

func (s *stage) do(f []string) string {
	out := ""
	for _, name := range f[1:] {
		switch f[0] {
		case "register", "start":
			s.index++
			n := &cluster.Node{ID: id(name), Name: name, BrokerEpoch: ident.BrokerEpoch(s.index), State: cluster.Dead}
			if f[0] == "start" {
				n.State, n.Activated = cluster.Alive, n.BrokerEpoch
			}
			s.view.Nodes[n.ID] = n
		case "activate":
			n := *s.view.Nodes[id(name)]
			n.State, n.Activated = cluster.Alive, n.BrokerEpoch
			s.view.Nodes[n.ID] = &n
		case "over": // as the state machine says
			n := *s.view.Nodes[id(name)]
			n.State, n.Ended = cluster.Dead, n.BrokerEpoch
			s.view.Nodes[n.ID] = &n
			s.renews[name] = false
		case "forget":
			delete(s.view.Nodes, id(name))
		case "renews":
			s.renews[name] = true
		case "stops":
			s.renews[name] = false
		case "renew":
			out += fmt.Sprintf("%s renewed %v\n", name, s.m.Renewed(s.life(name), s.now))
		case "lost", "refused":
			s.m.Suspected(cluster.Suspicion{From: id("z"), Life: s.life(name), Refused: f[0] == "refused"}, s.now)
		case "answers":
			s.m.Probed(s.life(name), liveness.Answered, s.now)
		case "refuses":
			s.m.Probed(s.life(name), liveness.Refused, s.now)
		case "silent":
			s.m.Probed(s.life(name), liveness.Silent, s.now)
		case "live":
			out += fmt.Sprintf("%s live %v suspect %v\n", name, s.m.Live(id(name)), s.m.Suspect(id(name)))
		case "wait":
			d, err := time.ParseDuration(name)
			if err != nil {
				s.t.Fatal(err)
			}
			for end := s.now.Add(d); s.now.Before(end); {
				s.now = s.now.Add(100 * time.Millisecond)
				out += s.tick()
			}
		case "stall": // no Tick for so long, then one
			d, err := time.ParseDuration(name)
			if err != nil {
				s.t.Fatal(err)
			}
			s.now = s.now.Add(d)
			out += s.tick()
		default:
			s.t.Fatalf("unknown line %q", f)
		}
	}
	switch f[0] {
	case "led":
		s.led = true
		s.m.Led(s.now, s.view)
	case "deposed":
		s.led = false
		s.m.Deposed()
	case "proved":
		s.m.Proved(s.now)
	case "observe":
		s.m.Observe(s.now, s.view)
	}
	return out
}

func (s *stage) tick() (out string) {
	for name, renews := range s.renews {
		if renews && s.led && s.now.Sub(s.start)%(500*time.Millisecond) == 0 && !s.m.Renewed(s.life(name), s.now) {
			out += name + " is fenced\n"
		}
	}
	a := s.m.Tick(s.now, s.view)
	at := fmt.Sprintf("%.1fs: ", s.now.Sub(s.start).Seconds())
	if a.Prove {
		out += at + "prove\n"
	}
	if len(a.Probe) > 0 {
		out += at + "probe " + names(a.Probe) + "\n"
	}
	if len(a.Expire) > 0 {
		out += at + "expire " + names(a.Expire) + "\n"
	}
	return out
}

func names(lives []cluster.Life) string {
	var all []string
	for _, l := range lives {
		all = append(all, fmt.Sprintf("%c@%d", l.Node[0], l.Epoch))
	}
	if !slices.IsSorted(all) {
		return "out of order: " + strings.Join(all, " ")
	}
	return strings.Join(all, " ")
}

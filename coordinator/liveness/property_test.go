package liveness_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"tidewire/coordinator/liveness"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// signs is what is known of one node from outside the machine.
type signs struct {
	renewed time.Time // or began to be watched
	sign    time.Time // the last sign of life
	asked   time.Time
	under   bool // a probe is under way
	refused bool // since the last sign of life
}

// Nobody is declared over who renewed within a lease, unless a probe was refused;
// nobody without a probe, unless mute; and never more than half without a proof of
// leadership since the lease of the first of them could have ended.
func TestNobodyIsDeclaredOverWithoutCause(t *testing.T) {
	expired, masses := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		m := liveness.New(liveness.Config{})
		now := time.Unix(1000, 0)
		s := &cluster.Snapshot{Nodes: map[ident.NodeID]*cluster.Node{}}
		known := map[ident.NodeID]*signs{}
		n := rapid.IntRange(1, 5).Draw(t, "nodes")
		for i := range n {
			id := ident.NodeID{byte(i + 1)}
			s.Nodes[id] = &cluster.Node{ID: id, State: cluster.Alive, BrokerEpoch: ident.BrokerEpoch(i + 1)}
			known[id] = &signs{renewed: now, sign: now}
		}
		m.Led(now, s)
		var proved, proving time.Time
		tick := func(tenths int) {
			now = now.Add(time.Duration(tenths) * 100 * time.Millisecond)
			a := m.Tick(now, s)
			if a.Prove {
				proving = now
			}
			for _, l := range a.Probe {
				known[l.Node].asked, known[l.Node].under = now, true
			}
			if 2*len(a.Expire) > len(known) {
				masses++
				if proved.IsZero() || now.Sub(proved) > 4*time.Second {
					t.Fatalf("%d of %d declared over, leadership proved at %v, now %v", len(a.Expire), len(known), proved, now)
				}
			}
			for _, l := range a.Expire {
				expired++
				k := known[l.Node]
				mute := now.Sub(k.renewed) >= 10*time.Second
				lapsed := now.Sub(k.sign) >= 2*time.Second && !k.asked.Before(k.sign)
				if !mute && !lapsed && !k.refused {
					t.Fatalf("%v declared over at %v: %+v", l, now, k)
				}
			}
			for _, l := range a.Expire { // the state machine follows
				over := *s.Nodes[l.Node]
				over.Ended, over.State = over.BrokerEpoch, cluster.Dead
				s.Nodes[l.Node] = &over
				delete(known, l.Node)
			}
		}
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			id := ident.NodeID{byte(rapid.IntRange(1, n).Draw(t, "node"))}
			k, life := known[id], s.Nodes[id].Life()
			switch rapid.IntRange(0, 6).Draw(t, "step") {
			case 0:
				if k != nil && m.Renewed(life, now) {
					k.renewed, k.sign, k.refused = now, now, false
				}
			case 1:
				m.Suspected(cluster.Suspicion{Life: life, Refused: true}, now)
			case 2:
				if k != nil && k.under {
					o := rapid.SampledFrom([]liveness.Outcome{liveness.Answered, liveness.Refused, liveness.Silent}).Draw(t, "outcome")
					m.Probed(life, o, now)
					k.under = false
					switch o {
					case liveness.Answered:
						k.sign, k.refused = now, false
					case liveness.Refused:
						k.refused = true
					}
				}
			case 3:
				if !proving.IsZero() {
					m.Proved(now)
					proved, proving = now, time.Time{}
				}
			default:
				tick(rapid.SampledFrom([]int{1, 1, 1, 1, 3, 8, 40}).Draw(t, "ticks"))
			}
		}
		// In the end nobody is heard of any more: whatever happened before, all are
		// declared over together once leadership is proved.
		for i := 0; len(known) > 0; i++ {
			if i == 400 {
				t.Fatalf("%d are not declared over after 40 s of silence: %+v", len(known), known)
			}
			tick(1)
			if proving.Equal(now) {
				m.Proved(now)
				proved, proving = now, time.Time{}
			}
			for id, k := range known {
				if k.under {
					m.Probed(s.Nodes[id].Life(), liveness.Silent, now)
					k.under = false
				}
			}
		}
	})
	if expired == 0 || masses == 0 {
		t.Fatalf("%d declared over, %d times most of them: not reached", expired, masses)
	}
}

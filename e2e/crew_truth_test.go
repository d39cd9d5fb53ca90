package e2e_test

import (
	"time"

	"tidewire/e2e/harness"
)

// truthIn is how soon the list of nodes shows what happened.
const truthIn = 3 * time.Second

// awaitTruth waits until a node is listed in a state, by the call and by the command of
// another node, and holds both to truthIn.
func (w *crew) awaitTruth(m *harness.Member, state string) {
	w.t.Helper()
	began, starved := time.Now(), w.cluster.Starved()
	w.cluster.AwaitState(patience, m, state)
	called := time.Since(began)
	harness.Await(w.t, patience, "the command nodes shows that "+m.Name+" is "+state, func() bool {
		for _, by := range w.cluster.Gateways() {
			if by == m {
				continue
			}
			info, err := tryListedNodes(w.ctx, by)
			if err == nil {
				x, ok := info.Find(m.Name)
				return ok && x.State == state
			}
		}
		return false
	})
	took := time.Since(began)
	w.t.Logf("%s is %s: GET /nodes/ shows it after %s, the command nodes after %s", m.Name, state, called.Round(time.Millisecond), took.Round(time.Millisecond))
	if most := slack(truthIn) + starved(); took > most {
		w.late.add("%s is %s: GET /nodes/ shows it after %s, the command nodes after %s, %s at most is allowed; load %s",
			m.Name, state, called.Round(time.Millisecond), took.Round(time.Millisecond), most, harness.Load())
	}
}

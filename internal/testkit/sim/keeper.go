package sim

import (
	"time"

	"tidewire/coordinator/balance"
	"tidewire/coordinator/liveness"
	"tidewire/internal/cluster"
)

// keeper is what the leading coordinator does beside the log: production's machines
// say which lives are over and who is to lead and hold what; it makes the probes and
// proposes the changes.
type keeper struct {
	w       *World
	by      *member
	term    int
	lives   *liveness.Machine
	planner *balance.Planner
	planned time.Duration
	open    int // changes of the last plan that are not made yet
}

const (
	lookEvery = 50 * time.Millisecond
	planEvery = 200 * time.Millisecond
	probeWait = 500 * time.Millisecond
)

// led begins anew: a coordinator that comes to lead knows of no lease.
func (k *keeper) led(m *member) {
	set := &k.w.set
	k.by, k.term, k.open = m, k.w.council.term, 0
	k.lives = liveness.New(liveness.Config{Lease: set.Lease, ProbeWait: probeWait, Every: lookEvery})
	k.planner = balance.New(balance.Config{ReplicaLag: set.Lag, ReplaceAfter: set.ReplaceAfter, Settled: set.Settled})
	k.lives.Led(k.now(), k.w.council.now())
	term := k.term
	k.w.in(m.p, 0, func() { k.tick(term) })
}

// now is what the clocks of the leading coordinator say.
func (k *keeper) now() time.Time { return k.w.clockOf(k.by.p) }

func (k *keeper) leads(term int) bool {
	return k.w.council.term == term && k.w.council.leader != nil
}

func (k *keeper) renewed(l cluster.Life) (granted bool) {
	k.lives.Observe(k.now(), k.w.council.now())
	return k.lives.Renewed(l, k.now())
}

func (k *keeper) suspected(s cluster.Suspicion) {
	k.lives.Observe(k.now(), k.w.council.now())
	k.lives.Suspected(s, k.now())
	k.look(k.term)
}

func (k *keeper) tick(term int) {
	if k.leads(term) {
		k.look(term)
		k.w.in(k.by.p, lookEvery, func() { k.tick(term) })
	}
}

// look lets the machines decide.
func (k *keeper) look(term int) {
	if !k.leads(term) {
		return
	}
	w, now, s := k.w, k.now(), k.w.council.now()
	do := k.lives.Tick(now, s)
	for _, l := range do.Probe {
		k.probe(l)
	}
	if do.Prove {
		w.reached.hit("leadership proved before a mass expiry (C5)")
		w.in(k.by.p, w.between(time.Millisecond, 5*time.Millisecond), func() {
			if k.leads(term) && w.council.quorum(k.by) {
				k.lives.Proved(k.now())
			}
		})
	}
	if len(do.Expire) > 0 {
		k.make(cluster.Change{Expire: &cluster.Expire{Lives: do.Expire}}, func() {})
	}
	if due := k.planner.Due(); k.open > 0 || w.now-k.planned < planEvery && (due.IsZero() || now.Before(due)) {
		return
	}
	k.planned = w.now
	for _, c := range k.planner.Plan(now, s, k.lives.Live) {
		k.open++
		k.make(c, func() {
			if k.term == term {
				k.open--
			}
		})
	}
}

// make has the coordinator itself make a change.
func (k *keeper) make(c cluster.Change, done func()) {
	k.w.council.decree(k.by.p, k.term, c, func(cluster.Answer, error) { done() })
}

// probe asks a node whether it is there.
func (k *keeper) probe(l cluster.Life) {
	w, term := k.w, k.term
	told := func(o liveness.Outcome) {
		if k.leads(term) {
			k.lives.Probed(l, o, k.now())
			k.look(term)
		}
	}
	b := w.brokerOf(l.Node)
	w.call(k.by.p, b.p, probeWait, func(reply func(func())) {
		outcome := liveness.Answered
		if b.self.Epoch != 0 && b.self != l || b.self.Epoch == 0 && b.next != l {
			outcome = liveness.Refused // who answers is in another life
		}
		reply(func() { told(outcome) })
	}, func(refused bool) {
		if refused {
			told(liveness.Refused)
		} else {
			told(liveness.Silent)
		}
	})
}

package liveness

import (
	"cmp"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// Config tunes a machine. A zero field means its default.
type Config struct {
	Lease     time.Duration // of a renewal; 2 s
	ProbeWait time.Duration // silence for so long is none; 500 ms
	Every     time.Duration // how often Tick is called; 100 ms
	Coming    time.Duration // how long a registered life may take to activate itself; 5 leases
	Mute      time.Duration // how long a node may answer probes and not renew; 5 leases
}

func (c Config) withDefaults() Config {
	c.Lease = cmp.Or(c.Lease, 2*time.Second)
	c.ProbeWait = cmp.Or(c.ProbeWait, 500*time.Millisecond)
	c.Every = cmp.Or(c.Every, 100*time.Millisecond)
	c.Coming = cmp.Or(c.Coming, 5*c.Lease)
	c.Mute = cmp.Or(c.Mute, 5*c.Lease)
	return c
}

// Outcome is what came of a probe.
type Outcome uint8

const (
	Answered Outcome = iota
	// Refused: nobody listens at the node's address, or who answers is in another
	// life.
	Refused
	Silent
)

// Actions are what the coordinator is to do. It tells what came of each probe with
// Probed, and of the proof with Proved or Deposed.
type Actions struct {
	Probe  []cluster.Life
	Expire []cluster.Life
	Prove  bool // that this coordinator leads still
}

// Machine watches the lives of all nodes while its coordinator leads. One goroutine
// owns it.
type Machine struct {
	cfg    Config
	leads  bool
	ticked time.Time // the last Tick
	nodes  map[ident.NodeID]*watched
	// doubted is when a mass expiry was put off for a proof; proved is when the last
	// proof came. Zero: never.
	doubted, proved time.Time
}

// watched is the latest life of one node.
type watched struct {
	life    cluster.Life
	until   time.Time // the lease's end
	renewed time.Time // the last renewal, or when the life was first seen
	coming  bool      // not activated yet

	suspected bool
	probing   time.Time // when the probe under way was made; zero: none is
	asked     time.Time // when the last probe was made
	silent    bool      // so the last probe ended
	refused   bool
	expired   time.Time // when its end was asked for; zero: not yet
}

// New is a machine of a coordinator that does not lead.
func New(cfg Config) *Machine {
	return &Machine{cfg: cfg.withDefaults(), nodes: map[ident.NodeID]*watched{}}
}

// Led begins to watch: this coordinator leads from now on, and has applied all that
// was committed. Nobody has a lease that it knows of; each has the time of one to show that
// it is alive.
func (m *Machine) Led(now time.Time, s *cluster.Snapshot) {
	*m = Machine{cfg: m.cfg, leads: true, ticked: now, nodes: map[ident.NodeID]*watched{}}
	m.Observe(now, s)
	for _, w := range m.nodes {
		w.suspected = !w.coming
	}
}

// Deposed ends it: this coordinator does not lead any more.
func (m *Machine) Deposed() { *m = *New(m.cfg) }

// Observe takes in which lives there are. Tick does so too; a renewal that comes right
// after a registration needs it before.
func (m *Machine) Observe(now time.Time, s *cluster.Snapshot) {
	if !m.leads {
		return
	}
	for id, n := range s.Nodes {
		w := m.nodes[id]
		switch {
		case n.Over():
			delete(m.nodes, id)
			continue
		case w == nil || w.life != n.Life():
			w = &watched{life: n.Life(), renewed: now, coming: n.Coming(), until: now.Add(m.cfg.Lease)}
			if w.coming {
				w.until = now.Add(m.cfg.Coming)
			}
			m.nodes[id] = w
		case w.coming && !n.Coming():
			w.coming, w.renewed, w.until = false, now, now.Add(m.cfg.Lease)
		}
	}
	for id := range m.nodes {
		if s.Nodes[id] == nil {
			delete(m.nodes, id)
		}
	}
}

// Renewed renews a lease. Not granted means that the life is over or unknown here:
// the node begins another. While this coordinator does not lead, nothing is granted, and
// that means nothing.
func (m *Machine) Renewed(l cluster.Life, now time.Time) (granted bool) {
	w := m.nodes[l.Node]
	if w == nil || w.life != l || !w.expired.IsZero() {
		return false
	}
	w.renewed = now
	w.lives(now.Add(m.cfg.Lease))
	return true
}

// lives is a sign of life. A suspicion stays until a probe has answered it: the sign
// may have been on its way when the node died.
func (w *watched) lives(until time.Time) {
	w.until = latest(w.until, until)
	w.silent, w.refused = false, false
}

// Suspected asks for a probe because somebody lost a node, or was refused by it.
func (m *Machine) Suspected(s cluster.Suspicion, _ time.Time) {
	if w := m.nodes[s.Life.Node]; w != nil && w.life == s.Life && !w.coming {
		w.suspected = true
	}
}

// Probed tells what came of a probe. One that comes after ProbeWait counts only if it
// is an answer.
func (m *Machine) Probed(l cluster.Life, o Outcome, now time.Time) {
	w := m.nodes[l.Node]
	if w == nil || w.life != l || w.asked.IsZero() || w.probing.IsZero() && o != Answered {
		return
	}
	w.probing = time.Time{}
	w.suspected = false
	switch o {
	case Answered:
		w.lives(now.Add(m.cfg.Lease))
	case Refused:
		w.refused = true
	default:
		w.hush()
	}
}

// hush notes that a probe ended in silence, unless there was a renewal since it was made.
func (w *watched) hush() { w.silent = !w.renewed.After(w.asked) }

// Proved tells that this coordinator has proved that it leads.
func (m *Machine) Proved(now time.Time) { m.proved = now }

// Live says that a node has a lease and nothing speaks against it.
func (m *Machine) Live(id ident.NodeID) bool {
	w := m.nodes[id]
	return w != nil && !w.coming && !w.silent && !w.refused && w.expired.IsZero() && w.until.After(m.ticked)
}

// Suspect says that a node counts as alive and shows no life.
func (m *Machine) Suspect(id ident.NodeID) bool {
	w := m.nodes[id]
	return w != nil && !w.coming && !m.Live(id)
}

package lease

import (
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// Undo takes back leases that did not reach their member: they were no deliveries.
func (m *Machine) Undo(by cluster.MemberLife, offsets []ident.Offset) {
	for _, o := range offsets {
		s := m.window.find(o)
		if s == none {
			continue
		}
		e := m.window.at(s)
		if e.state != leased || e.hand.member != by.Member || e.hand.epoch != by.Epoch || e.serial == spokenOf {
			continue
		}
		m.undo(s)
	}
}

func (m *Machine) undo(s slot) {
	e := m.window.at(s)
	m.leave(s)
	m.letGo(e)
	e.latest = nil
	if e.given--; e.given > 0 {
		m.redeliver--
		m.holdBack(e)
	} else {
		e.fresh = m.former(e.offset) // somebody may have it from a former leader, as before
	}
	m.back(s)
}

// Idle says that nothing here goes on without members: nothing is leased, under way to the
// coordinator or to the dead-letter topic.
func (m *Machine) Idle() bool {
	if m.Dirty() || m.commits.round != nil || len(m.waits) > 0 {
		return false
	}
	for i := range m.window.entries {
		switch m.window.entries[i].state {
		case leased, acking, dying:
			return false
		case available, waiting:
		}
	}
	return true
}

// InFlight is how many records are leased.
func (m *Machine) InFlight() int {
	n := m.lost
	for _, h := range m.hands {
		n += h.leased
	}
	return n
}

// RanOut is how many leases have run out since the last call.
func (m *Machine) RanOut() int {
	n := m.ranOut
	m.ranOut = 0
	return n
}

// Any says that some record is available: whether to a certain member, Ready tells.
func (m *Machine) Any() bool { return m.ready.len() > 0 }

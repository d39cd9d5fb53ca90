package lease

import (
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/rpc"
)

// Take leases up to limit records to a member. What else bounds it is the group's
// max_in_flight: of this partition the machine sees to it, of several the caller, who
// asks for no more than max_in_flight less what Held says of all of them. The take is one
// of the gateway that Hearing names, which says as well what came of those before.
func (m *Machine) Take(now time.Time, by cluster.MemberLife, limit int, of rpc.Hearing) ([]rpc.Lease, error) {
	m.tick(now)
	h, err := m.handOf(by)
	if err != nil {
		return nil, err
	}
	m.hear(h, of)
	if limit <= 0 || m.late(h, of) {
		return nil, nil
	}
	serial := uint64(0)
	if of.Taker != 0 {
		m.serial++
		serial = m.serial
	}
	var leases []rpc.Lease
	for n := m.may(h, limit); n > 0; n-- {
		s := m.next()
		if s == none {
			break
		}
		m.lease(s, h, serial)
		e := m.window.at(s)
		leases = append(leases, rpc.Lease{Offset: e.offset, Delivery: int(e.given), Left: m.group.Settings.Lease})
	}
	if len(leases) > 0 && serial != 0 {
		a := m.answerTo(h, of.Taker)
		a.call, a.serial = of.Call, serial
	}
	return leases, nil
}

// Ready says whether a Take would lease anything to the member now.
func (m *Machine) Ready(now time.Time, by cluster.MemberLife) bool {
	m.tick(now)
	h, err := m.handOf(by)
	return err == nil && m.may(h, 1) > 0 && m.next() != none
}

// Held is how many records are leased to the member.
func (m *Machine) Held(member string) int {
	if h := m.hands[member]; h != nil {
		return h.leased
	}
	return 0
}

// may is how many records a hand may be given.
func (m *Machine) may(h *hand, limit int) int {
	if m.exclusive() && (m.owner.Next != "" || m.lost > 0 || m.now < m.hold) {
		return 0
	}
	return min(limit, m.group.Settings.MaxInFlight-h.leased)
}

// next is the record whose turn it is. What is held back is put aside on the way.
func (m *Machine) next() slot {
	for m.ready.len() > 0 {
		s := m.ready.top()
		e := m.window.at(s)
		k := m.keyOf(e)
		if k == nil || e.given > 0 && !e.unsure || e.offset <= k.failed[0] {
			return s
		}
		m.ready.remove(&m.window, s)
		e.held = true
		k.held = append(k.held, e.offset)
	}
	return none
}

func (m *Machine) lease(s slot, h *hand, serial uint64) {
	m.ready.remove(&m.window, s)
	e := m.window.at(s)
	e.state, e.hand, e.fresh = leased, h, false
	e.unsure = false
	e.latest, e.serial = h, serial
	e.until = m.now + m.group.Settings.Lease
	e.given++
	h.leased++
	if e.given > 1 {
		m.redeliver++
		m.tell(e)
	}
	m.timers.push(&m.window, s)
	m.letGo(e)
}

// leave takes a record out of the state it is in, to be put into another one.
func (m *Machine) leave(s slot) {
	e := m.window.at(s)
	switch e.state {
	case available:
		if !e.held && e.place >= 0 {
			m.ready.remove(&m.window, s)
		}
		e.held = false
	case leased:
		m.timers.remove(&m.window, s)
		e.hand.leased--
		if e.hand.former {
			m.lost--
		}
	case waiting:
		m.timers.remove(&m.window, s)
	}
}

// back makes a record available.
func (m *Machine) back(s slot) {
	e := m.window.at(s)
	e.state, e.hand = available, nil
	m.ready.push(&m.window, s)
}

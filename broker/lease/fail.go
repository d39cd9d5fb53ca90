package lease

import (
	"time"

	"tidewire/internal/cluster"
)

// Tick lets time pass.
func (m *Machine) Tick(now time.Time) { m.tick(now) }

func (m *Machine) tick(now time.Time) {
	m.now = max(m.now, m.since(now))
	for m.timers.len() > 0 {
		s := m.timers.top()
		e := m.window.at(s)
		if e.until > m.now {
			return
		}
		if e.state == leased {
			m.ranOut++
			m.fail(s, "its lease ran out", m.backoff(e))
			continue
		}
		m.leave(s)
		m.back(s)
	}
}

// Deadline is when Tick, or a look at Free or Ready, changes something next; zero: only
// others can.
func (m *Machine) Deadline() time.Time {
	if m.over {
		return time.Time{}
	}
	next := time.Duration(-1)
	sooner := func(d time.Duration) {
		if next < 0 || d < next {
			next = d
		}
	}
	if m.timers.len() > 0 {
		sooner(m.window.at(m.timers.top()).until)
	}
	if m.now < m.hold {
		sooner(m.hold)
	}
	if m.owner.Next != "" {
		if m.now < m.grace {
			sooner(m.grace)
		}
		if h := m.hands[m.owner.Member]; h != nil && m.now < h.until {
			sooner(h.until)
		}
	}
	if next < 0 {
		return time.Time{}
	}
	return m.base.Add(next)
}

// backoff before the delivery after the latest one.
func (m *Machine) backoff(e *entry) time.Duration {
	d := m.group.Settings.Backoff
	for n := e.given; n > 1 && d < cluster.MaxBackoff; n-- {
		d *= 2
	}
	return min(d, cluster.MaxBackoff)
}

// fail ends a delivery without an acknowledgement.
func (m *Machine) fail(s slot, why string, delay time.Duration) {
	e := m.window.at(s)
	if e.given >= m.lastDelivery() {
		m.die(s, "max deliveries: "+why)
		return
	}
	e.unsure = e.state == leased && e.hand.unheard(e)
	m.leave(s)
	m.holdBack(e)
	if delay <= 0 {
		m.back(s)
		return
	}
	e.state, e.hand, e.until = waiting, nil, m.now+delay
	m.timers.push(&m.window, s)
}

func (m *Machine) lastDelivery() int32 { return int32(max(1, m.group.Settings.MaxDeliveries)) }

// bury ends records that were delivered as often as the settings allow now.
func (m *Machine) bury() {
	for _, s := range m.window.those(func(e *entry) bool {
		return (e.state == available || e.state == waiting) && e.given >= m.lastDelivery()
	}) {
		m.die(s, "max deliveries")
	}
}

package lease

import (
	"time"

	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// Standing says how the group stands on the partition, but for which partition that is.
func (m *Machine) Standing(now time.Time) rpc.GroupStanding {
	m.tick(now)
	s := rpc.GroupStanding{
		Group: m.group.ID, Committed: m.Floor(), End: m.high, Redelivered: m.redeliver, Expired: m.overtaken, Paused: m.Paused(),
		Lag: int64(max(0, m.high-m.read)) - m.known.within(m.read, m.high),
	}
	for _, d := range m.dead {
		s.Dead += int64(d.To - d.From)
	}
	for _, e := range m.window.all {
		s.Lag++
		if e.state == leased {
			s.InFlight++
		}
		if e.state == dying {
			s.Dead++
		}
		if s.Oldest.IsZero() && e.given > 0 && !e.fresh && e.stamp > 0 {
			s.Oldest = time.UnixMilli(e.stamp)
		}
	}
	return s
}

// Status says what became of a record below the high watermark.
func (m *Machine) Status(now time.Time, o ident.Offset) rpc.RecordStatus {
	m.tick(now)
	st := rpc.RecordStatus{Group: m.group.ID, State: rpc.Received}
	if s := m.window.find(o); s != none {
		e := m.window.at(s)
		st.Delivery = int(e.given)
		switch e.state {
		case leased:
			st.State, st.Member, st.Left = rpc.InFlight, e.hand.member, e.until-m.now
		case acking:
			st.State, st.Member = rpc.InFlight, e.hand.member
		case dying:
			st.State = rpc.DeadState
		default:
			if e.fresh && e.given > 0 {
				st.Delivery++ // a former leader's latest one
			}
		}
		return st
	}
	switch {
	case m.dead.has(o):
		st.State = rpc.DeadState
	case m.skipped.has(o):
		st.State = rpc.Skipped
	case o < m.start || m.expired.has(o):
		st.State = rpc.Expired
	case o < m.read || m.known.has(o):
		st.State = rpc.Processed
	default:
		st.Delivery = m.counts[o]
	}
	return st
}

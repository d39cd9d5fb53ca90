package lease

import (
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// Wants says from where, and how many records are to be offered, so that n can be leased;
// 0: there are enough, or none to read, or too many that are not done. Ask again after a
// Take that gave less than n: some may be held back.
func (m *Machine) Wants(n int) (from ident.Offset, count int) {
	if m.over || m.read >= m.high {
		return m.read, 0
	}
	return m.read, max(0, min(n-m.ready.len(), m.room(), int(min(m.high-m.read, cluster.MaxUnfinished))))
}

// Unread says from where, and how many records are to be offered before a Settle with that
// Through: a former leader may have leased them, and only those that were read are known.
// Ask again after an Offer; 0: it can be settled.
func (m *Machine) Unread(through ident.Offset) (from ident.Offset, count int) {
	end := min(through, m.edge)
	if m.over || m.read >= end {
		return m.read, 0
	}
	return m.read, min(m.room(), int(min(end-m.read, cluster.MaxUnfinished)))
}

func (m *Machine) room() int { return max(0, cluster.MaxUnfinished-m.window.len()) }

// Paused says that too many records are not done: nothing more is read.
func (m *Machine) Paused() bool { return !m.over && m.room() == 0 && m.read < m.high }

// Offer takes records that were read from the log, by offset: all that it holds from from
// up to next. There may be more than were wanted. The answer is the read position.
func (m *Machine) Offer(from, next ident.Offset, records []Record) ident.Offset {
	if m.over || from > m.read {
		return m.read // of what lies between nothing is known
	}
	next = min(next, m.high)
	for _, r := range records {
		if r.Offset >= next {
			break
		}
		m.hole(r.Offset)
		if r.Offset < m.read {
			continue
		}
		if s, ok := m.window.aside[r.Offset]; ok {
			e := m.window.at(s)
			e.hash, e.keyed, e.stamp = r.Hash, r.Keyed && m.exclusive(), r.Stamp
			m.window.reached(s)
		} else if m.room() == 0 {
			return m.read
		} else {
			m.admit(r)
		}
		m.read = r.Offset + 1
		m.skip()
	}
	m.hole(next)
	m.skip()
	return m.read
}

// hole notes that there are no records from the read position up to o.
func (m *Machine) hole(o ident.Offset) {
	for _, s := range m.window.asideWithin(m.read, o) { // somebody spoke of what is none
		e := m.window.at(s)
		if e.state == acking || e.letter.stage == doomed {
			m.resolve(e, nil)
			m.window.drop(s)
			continue
		}
		m.nothing(e.offset)
		m.read = e.offset + 1
		m.window.reached(s)
		m.skip()
	}
	m.nothing(o)
}

// nothing is a hole with nothing aside in it. What is done of that needs no mention.
func (m *Machine) nothing(o ident.Offset) {
	for m.read < o {
		end := o
		if len(m.known) > 0 {
			end = min(end, m.known[0].From)
		}
		if end > m.read {
			m.holes.add(cluster.Span{From: m.read, To: end})
			m.read = end
		}
		m.skip()
	}
}

func (m *Machine) admit(r Record) {
	e := entry{offset: r.Offset, hash: r.Hash, keyed: r.Keyed && m.exclusive(), stamp: r.Stamp, fresh: m.former(r.Offset)}
	if c, ok := m.counts[r.Offset]; ok {
		// The former leader's latest lease is given again under its number.
		e.given = int32(max(c-1, 0))
		delete(m.counts, r.Offset)
	}
	s := m.window.add(e)
	if e.given >= m.lastDelivery() {
		m.die(s, "max deliveries")
		return
	}
	m.ready.push(&m.window, s)
}

// expire ends what the log holds no more.
func (m *Machine) expire(start ident.Offset) {
	if m.Floor() < start || m.remembers(start) {
		m.commits.start = start
	}
	for _, s := range m.window.those(func(e *entry) bool {
		// What is being committed is none of retention's. Nor is a letter whose sequence is
		// taken: it goes without its value.
		return e.offset < start && e.state != acking && (e.state != dying || e.letter.stage == doomed)
	}) {
		e := m.window.at(s)
		if e.state == leased { // its member goes on, and does not know
			e.hand.until = max(e.hand.until, e.until)
			if e.hand.former {
				m.hold = max(m.hold, e.until)
			}
		}
		m.overtaken++
		m.finish(s, gone(e.offset))
	}
	if m.read < start {
		m.overtaken += int64(start-m.read) - m.known.within(m.read, start) - int64(len(m.window.asideWithin(m.read, start)))
		m.read = start
		m.skip()
		for o := range m.counts {
			if o < start {
				delete(m.counts, o)
			}
		}
	}
	m.holes.cut(start)
	for _, s := range []*spans{&m.dead, &m.skipped, &m.expired} {
		s.cut(start)
	}
}

func (m *Machine) remembers(start ident.Offset) bool {
	for _, s := range []spans{m.dead, m.skipped, m.expired} {
		if len(s) > 0 && s[0].From < start {
			return true
		}
	}
	return false
}

// Floor is the first record that is not known to be done.
func (m *Machine) Floor() ident.Offset {
	o := m.read
	if len(m.window.order) > 0 {
		o = min(o, m.window.order[0].offset)
	}
	if len(m.holes) > 0 {
		o = min(o, m.holes[0].From)
	}
	return o
}

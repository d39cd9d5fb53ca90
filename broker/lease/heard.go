package lease

import (
	"slices"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/rpc"
)

// maxTakers bounds whose takes a hand remembers: a member has one gateway, or a few.
const maxTakers = 16

// answer is the latest one to a taker, for one hand: it may have been lost on its way.
type answer struct {
	taker  uint64
	over   uint64 // takes below it are over, whenever they arrive
	call   uint64 // the latest take that leased something
	serial uint64 // of these leases; 0: it is known what became of the answer
	held   bool   // later records of their keys wait for them
}

// Hear takes in which answers a member's gateway has had. What was leased in one that was
// lost is available at once, and was no delivery.
func (m *Machine) Hear(now time.Time, by cluster.MemberLife, of rpc.Hearing) {
	m.tick(now)
	if h, err := m.handOf(by); err == nil {
		m.hear(h, of)
	}
}

// hear also sees to it that nothing overtakes what another gateway may not have had.
func (m *Machine) hear(h *hand, of rpc.Hearing) {
	if of.Taker != 0 {
		a := m.answerTo(h, of.Taker)
		switch {
		case a.serial == 0:
		case a.call <= of.Heard:
			m.heard(a)
		case a.call < of.Call:
			m.lostAnswer(a)
		}
		a.over = max(a.over, of.Call)
	}
	for i := range h.answers {
		if a := &h.answers[i]; a.taker != of.Taker && a.serial != 0 && !a.held {
			a.held = true
			for _, s := range m.leasedIn(a) {
				m.holdBack(m.window.at(s))
			}
		}
	}
}

// answerTo finds what is known of a taker. Where there are too many the oldest one passes
// for having heard all.
func (m *Machine) answerTo(h *hand, taker uint64) *answer {
	i := slices.IndexFunc(h.answers, func(a answer) bool { return a.taker == taker })
	if i >= 0 {
		return &h.answers[i]
	}
	if len(h.answers) == maxTakers {
		oldest := max(0, slices.IndexFunc(h.answers, func(a answer) bool { return a.serial == 0 }))
		m.heard(&h.answers[oldest])
		h.answers = slices.Delete(h.answers, oldest, oldest+1)
	}
	h.answers = append(h.answers, answer{taker: taker})
	return &h.answers[len(h.answers)-1]
}

// late says that a take has leased already, or is given up.
func (m *Machine) late(h *hand, of rpc.Hearing) bool {
	if of.Taker == 0 {
		return false
	}
	a := m.answerTo(h, of.Taker)
	return of.Call < a.over || of.Call <= a.call
}

// leasedIn are the records that were leased in an answer and are still.
func (m *Machine) leasedIn(a *answer) []slot {
	return m.window.those(func(e *entry) bool { return e.state == leased && e.serial == a.serial })
}

func (m *Machine) heard(a *answer) {
	if a.held {
		for _, s := range m.leasedIn(a) {
			m.letGo(m.window.at(s))
		}
	}
	a.serial, a.held = 0, false
}

func (m *Machine) lostAnswer(a *answer) {
	for _, s := range m.leasedIn(a) {
		m.undo(s)
	}
	a.serial, a.held = 0, false
}

// unheard says that the hand may not know of a lease.
func (h *hand) unheard(e *entry) bool {
	return e.serial != 0 && slices.ContainsFunc(h.answers, func(a answer) bool { return a.serial == e.serial })
}

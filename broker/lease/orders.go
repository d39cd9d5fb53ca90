package lease

import (
	"maps"
	"slices"
	"strings"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// hand is one life of a member; in exclusive mode, with one ownership of the partition.
type hand struct {
	member     string
	epoch      ident.MemberEpoch
	assignment ident.Assignment // 0 in shared mode
	leased     int
	acks       []ident.Offset // to be committed, and not under way
	sent       int            // acknowledgements under way
	until      time.Duration  // of leases of records that retention took
	former     bool           // of an owner who did not let go
	refused    bool           // a commit says that it is over, and the feed does not yet
	answers    []answer       // to those who take for it
}

// See takes in the group as it is now. False: the machine is over.
func (m *Machine) See(now time.Time, g *cluster.Group) bool {
	m.tick(now)
	switch {
	case m.over:
		return false
	case g.ID != m.group.ID || g.Reset > m.group.Reset:
		m.End()
		return false
	case g.Modified <= m.group.Modified:
		return true
	}
	m.group = g
	if m.exclusive() {
		m.assign(owner(g, m.cfg.Partition))
	} else {
		m.part()
	}
	m.bury()
	return !m.over
}

func owner(g *cluster.Group, p ident.Index) cluster.Owner {
	if o := g.Owner(p); o != nil {
		return *o
	}
	return cluster.Owner{Released: true}
}

// assign takes in who owns the partition.
func (m *Machine) assign(o cluster.Owner) {
	former := m.owner
	m.owner = o
	if o.Epoch != former.Epoch {
		m.passOn(former)
	}
}

// passOn ends what the owner of before holds.
func (m *Machine) passOn(former cluster.Owner) {
	same := former.Member != "" && m.owner.Member == former.Member
	if !m.owner.Released && !same {
		m.hold = max(m.hold, m.grace)
	}
	h := m.hands[former.Member]
	if h == nil {
		return
	}
	delete(m.hands, former.Member)
	m.drop(h)
	if m.owner.Released || same {
		m.takeBack(h, true)
		return
	}
	m.hold = max(m.hold, h.until)
	h.former = true
	m.lost += h.leased
}

// part ends what members held that are gone, in shared mode. One that came again gets it
// at once.
func (m *Machine) part() {
	for _, id := range slices.Sorted(maps.Keys(m.hands)) { // the machine does the same each time
		h := m.hands[id]
		if now, there := m.member(id); !there || now.Epoch != h.epoch {
			delete(m.hands, id)
			m.drop(h)
			m.takeBack(h, there)
		}
	}
}

// takeBack ends all leases of a hand.
func (m *Machine) takeBack(h *hand, atOnce bool) {
	for _, s := range m.window.those(func(e *entry) bool { return e.state == leased && e.hand == h }) {
		delay := time.Duration(0)
		if !atOnce {
			delay = m.backoff(m.window.at(s))
		}
		m.fail(s, "the member is gone", delay)
	}
}

// drop gives up acknowledgements whose hand is gone: they would be refused.
func (m *Machine) drop(h *hand) {
	for _, o := range h.acks {
		m.forgive(o, h)
	}
	h.acks = nil
}

// handOf finds the member's life, if it counts.
func (m *Machine) handOf(by cluster.MemberLife) (*hand, error) {
	if m.over {
		return nil, fault.New(fault.LeaderUnavailable, "the group's progress is being read; try again")
	}
	if h := m.hands[by.Member]; h != nil && h.epoch == by.Epoch && !h.refused {
		return h, nil
	}
	now, ok := m.member(by.Member)
	switch {
	case by.Group != m.group.ID || !ok || now.Epoch != by.Epoch:
		return nil, fault.New(fault.Fenced, "this life of member %q is over; join again", by.Member)
	case m.exclusive() && m.owner.Member != by.Member:
		return nil, fault.New(fault.Fenced, "partition %d is not assigned to member %q; its next heartbeat says what is", m.cfg.Partition, by.Member)
	case m.hands[by.Member] != nil:
		return nil, fault.New(fault.Fenced, "partition %d has moved away from member %q, or the member's life is over; its next heartbeat says so", m.cfg.Partition, by.Member)
	}
	h := &hand{member: by.Member, epoch: by.Epoch, assignment: m.owner.Epoch}
	m.hands[by.Member] = h
	return h, nil
}

func (m *Machine) member(id string) (cluster.Member, bool) {
	i, ok := slices.BinarySearchFunc(m.group.Members, id, func(c cluster.Member, id string) int { return strings.Compare(c.ID, id) })
	if !ok {
		return cluster.Member{}, false
	}
	return m.group.Members[i], true
}

// Free says that the partition is to go to another owner and nothing of it is in anybody's
// hands: it can be released, and that is what to say.
func (m *Machine) Free(now time.Time) (of cluster.ReleaseOf, free bool) {
	m.tick(now)
	if m.over || !m.exclusive() || m.owner.Next == "" || m.lost > 0 || m.now < m.grace || m.now < m.hold {
		return of, false
	}
	if h := m.hands[m.owner.Member]; h != nil && (h.leased > 0 || m.now < h.until || len(h.acks) > 0 || h.sent > 0) {
		return of, false
	}
	return cluster.ReleaseOf{Group: m.group.ID, Partition: m.cfg.Partition, Epoch: m.owner.Epoch, Notice: m.owner.Notice, Drained: true}, true
}

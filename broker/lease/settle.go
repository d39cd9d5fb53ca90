package lease

import (
	"slices"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// Settlement is what becomes of a Settle call.
type Settlement struct {
	// Token: the call is answered once Answers names it. 0: it can be answered now.
	Token Token
	Stale []rpc.Stale
	// Extended are the leases that were, and how long they last from now on.
	Extended []rpc.Extended
}

// wait is a Settle call that is not decided.
type wait struct {
	left  int // records
	stale []rpc.Stale
}

// Settle takes what a member says of this partition's records. An error: the life is over,
// or the machine, or records that Unread names were not offered, and nothing was taken.
func (m *Machine) Settle(now time.Time, by cluster.MemberLife, of rpc.SettleOf) (Settlement, error) {
	m.tick(now)
	h, err := m.handOf(by)
	if err != nil {
		if c, ok := m.member(by.Member); m.over || !ok || c.Epoch != by.Epoch {
			return Settlement{}, err
		}
		return Settlement{Stale: foreign(of, err)}, nil
	}
	if _, n := m.Unread(of.Through); n > 0 {
		return Settlement{}, fault.New(fault.LeaderUnavailable, "what was leased before offset %d has yet to be read; try again", of.Through)
	}
	m.token++
	c := call{m: m, hand: h, token: m.token}
	for _, o := range of.Ack {
		c.take(o, c.ack(o))
	}
	if of.Through >= 0 {
		c.through(of.Through)
	}
	for _, n := range of.Nack {
		c.take(n.Offset, c.nack(n))
	}
	for _, o := range of.Extend {
		c.take(o, c.extend(o))
	}
	for _, r := range of.Reject {
		c.take(r.Offset, c.reject(r))
	}
	if c.left == 0 {
		return Settlement{Stale: c.stale, Extended: c.extended}, nil
	}
	m.waits[c.token] = &wait{left: c.left}
	return Settlement{c.token, c.stale, c.extended}, nil
}

// foreign refuses every entry of what a member says that does not own the partition.
func foreign(of rpc.SettleOf, err error) (all []rpc.Stale) {
	add := func(o ident.Offset) { all = append(all, rpc.Stale{Offset: o, Err: err}) }
	for _, o := range slices.Concat(of.Ack, of.Extend) {
		add(o)
	}
	if of.Through >= 0 {
		add(of.Through)
	}
	for _, n := range of.Nack {
		add(n.Offset)
	}
	for _, r := range of.Reject {
		add(r.Offset)
	}
	return all
}

// call is a Settle call while it is taken apart.
type call struct {
	m     *Machine
	hand  *hand
	token Token
	left  int
	stale []rpc.Stale

	extended []rpc.Extended
}

func (c *call) take(o ident.Offset, err error) {
	if err != nil {
		c.stale = append(c.stale, rpc.Stale{Offset: o, Err: err})
	}
}

// await lets the call wait until the record is done.
func (c *call) await(e *entry) {
	c.left++
	if e.token == 0 {
		e.token = c.token
		return
	}
	if c.m.crowd == nil {
		c.m.crowd = map[ident.Offset][]Token{}
	}
	c.m.crowd[e.offset] = append(c.m.crowd[e.offset], c.token)
}

func (c *call) ack(o ident.Offset) error {
	s, done, err := c.find(o)
	if s == none {
		if err != nil || done {
			return err
		}
		s = c.m.window.addAside(entry{offset: o, state: available, fresh: true, held: true})
	}
	e := c.m.window.at(s)
	switch e.state {
	case acking:
		if e.hand != c.hand {
			return elsewhere(o)
		}
	case dying:
		return dead(o)
	default:
		if !e.leasedOnce() {
			return ended(o)
		}
		c.m.leave(s)
		c.m.letGo(e)
		e.state, e.hand, e.latest = acking, c.hand, c.hand
		c.hand.acks = append(c.hand.acks, o)
		c.m.commits.queue(c.hand)
	}
	c.await(e)
	return nil
}

// through acknowledges all that is leased to the member up to o, and o itself: that one it
// has for sure, though this leader may not know. What a former leader may have leased to the
// member, or to another one, or have had back from it, is not taken, and the member is told:
// it knows, and can acknowledge each of them. So it is with what this leader leased in an
// answer of which it does not know whether it came.
func (c *call) through(o ident.Offset) {
	for _, s := range c.m.window.those(func(e *entry) bool { return e.offset < o }) {
		switch e := c.m.window.at(s); {
		case e.state == leased && e.hand == c.hand && c.hand.unheard(e):
			c.take(e.offset, untold(e.offset))
		case e.state == leased && e.hand == c.hand:
			c.take(e.offset, c.ack(e.offset))
		case e.latest != c.hand && c.m.former(e.offset):
			c.take(e.offset, c.refusal(e))
		}
	}
	if o < c.m.high {
		c.take(o, c.ack(o))
	}
}

// refusal is why a record that a former leader may have leased to the member is not taken with
// others: what was leased since by this one does not tell who had it before.
func (c *call) refusal(e *entry) error {
	switch e.state {
	case leased, acking:
		return elsewhere(e.offset)
	case dying:
		return dead(e.offset)
	}
	return unsaid(e.offset)
}

func (c *call) nack(n rpc.Nack) error {
	s, done, err := c.find(n.Offset)
	if s == none {
		if done {
			return processed(n.Offset)
		}
		return err
	}
	e := c.m.window.at(s)
	switch {
	case e.state == leased:
	case e.state == acking:
		return processed(n.Offset)
	case e.state == dying:
		return dead(n.Offset)
	case e.state == available && e.fresh:
		e.given, e.fresh, e.latest = e.given+1, false, c.hand // a delivery of a former leader's
	default:
		return nil // it was given back before
	}
	delay := n.Delay
	if delay < 0 {
		delay = c.m.backoff(e)
	}
	c.m.fail(s, "nack", min(delay, cluster.MaxLease))
	return nil
}

func (c *call) extend(o ident.Offset) error {
	s, done, err := c.find(o)
	if s == none {
		if done {
			return processed(o)
		}
		if err == nil {
			err = ended(o)
		}
		return err
	}
	m := c.m
	e := m.window.at(s)
	if e.state != leased {
		return ended(o)
	}
	// The whole lease or none: a member counts on it, and may not have heard of the notice.
	if m.owner.Next != "" {
		return fault.New(fault.Fenced, "partition %d goes to another member: the lease of offset %d stays as it is", m.cfg.Partition, o)
	}
	if until := m.now + m.group.Settings.Lease; until > e.until {
		e.until = until
		m.timers.moved(&m.window, s)
	}
	// It has the record, and counts on this lease whatever comes of the answer with it.
	m.letGo(e)
	e.serial = spokenOf
	c.extended = append(c.extended, rpc.Extended{Offset: o, Left: e.until - m.now})
	return nil
}

func (c *call) reject(r rpc.Reject) error {
	s, done, err := c.find(r.Offset)
	if s == none {
		if done {
			return processed(r.Offset)
		}
		if err != nil {
			return err
		}
		s = c.m.window.addAside(entry{offset: r.Offset, state: available, fresh: true, held: true})
	}
	e := c.m.window.at(s)
	switch e.state {
	case acking:
		return processed(r.Offset)
	case dying:
		if e.letter.stage >= intended {
			return nil
		}
	default:
		if !e.leasedOnce() {
			return ended(r.Offset)
		}
		if e.fresh {
			e.given++
			e.latest = c.hand
		}
		c.m.die(s, reason(r.Reason))
	}
	c.await(e)
	return nil
}

// find finds a record that this member may settle. Without one it says whether it was
// processed already, or why it cannot be settled; neither: it was not read yet.
func (c *call) find(o ident.Offset) (s slot, done bool, err error) {
	m := c.m
	if o < 0 || o >= m.high {
		return none, false, fault.New(fault.OffsetNotFound, "there is no record at offset %d yet", o)
	}
	if s := m.window.find(o); s != none {
		if e := m.window.at(s); e.state == leased && e.hand != c.hand {
			return none, false, elsewhere(o)
		}
		return s, false, nil
	}
	switch {
	case m.dead.has(o):
		return none, false, dead(o)
	case m.skipped.has(o):
		return none, false, fault.New(fault.Fenced, "the group was moved past offset %d", o)
	case o < m.start || m.expired.has(o):
		return none, false, gone(o)
	case o < m.read || m.known.has(o):
		return none, true, nil
	case !m.former(o):
		return none, false, ended(o)
	case m.room() == 0:
		return none, false, fault.New(fault.Limit, "%d records of this partition are not done yet; acknowledge earlier ones first", cluster.MaxUnfinished)
	}
	return none, false, nil
}

func elsewhere(o ident.Offset) error {
	return fault.New(fault.Fenced, "the lease of offset %d ended, and it is in other hands", o)
}

func ended(o ident.Offset) error {
	return fault.New(fault.Fenced, "offset %d is not leased to this member any more", o)
}

func unsaid(o ident.Offset) error {
	return fault.New(fault.Fenced, "this leader does not know who has offset %d from the one before; acknowledge it by itself", o)
}

func untold(o ident.Offset) error {
	return fault.New(fault.Fenced, "this leader does not know yet whether offset %d has reached the member; acknowledge it by itself", o)
}

func processed(o ident.Offset) error {
	return fault.New(fault.Fenced, "offset %d is acknowledged", o)
}

func dead(o ident.Offset) error {
	return fault.New(fault.Fenced, "offset %d is dead: it goes to the dead-letter topic", o)
}

func gone(o ident.Offset) error {
	return fault.New(fault.OffsetExpired, "retention deleted offset %d", o)
}

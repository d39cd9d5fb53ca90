package lease

import (
	"cmp"
	"slices"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// What a part of a commit costs at most, as JSON.
const (
	partBytes   = 384 // with every field there, but for what the lists hold
	spanBytes   = 60
	countBytes  = 56
	intentBytes = 160 // and the reason
	offsetBytes = 22
	escaped     = 6 // bytes for one of a text, at worst
)

// Answer decides a Settle call: what it said is committed, but for what is stale. Unknown:
// the machine ended before that was known; what it said may count yet, or not.
type Answer struct {
	Token   Token
	Stale   []rpc.Stale
	Unknown bool
}

// Answers are those since the last call.
func (m *Machine) Answers() []Answer {
	a := m.answers
	m.answers = nil
	return a
}

// commits is what the coordinator is to be told.
type commits struct {
	hands     []*hand // who acknowledged something
	start     ident.Offset
	counts    []ident.Offset // of records that were leased again
	doomed    []ident.Offset // dying, without an intent that is committed
	published []ident.Offset // dying, with the record in the dead-letter topic
	sequence  int64          // of the next intent
	round     []part         // under way
	last      bool           // acknowledgements go last in the next round
}

// part is one part of a commit under way.
type part struct {
	hand *hand // whose acknowledgements these are; nil: of nobody
	acks []ident.Offset

	start                     ident.Offset
	holes                     []cluster.Span
	counts, doomed, published []ident.Offset
}

// Dirty says that Delta has something to give.
func (m *Machine) Dirty() bool {
	c := &m.commits
	return !m.over && c.round == nil && (len(c.hands) > 0 || m.own())
}

// own says that there is something to commit that is of no member.
func (m *Machine) own() bool {
	c := &m.commits
	return c.start > 0 || len(m.holes) > 0 || len(c.counts) > 0 || len(c.doomed) > 0 || len(c.published) > 0
}

// Delta gives what is to be committed now, of at most so many bytes as JSON. Nothing, while
// a commit is under way.
func (m *Machine) Delta(budget int) []cluster.CommitOf {
	c := &m.commits
	if !m.Dirty() {
		return nil
	}
	var of []cluster.CommitOf
	mine := func() {
		if p, o := m.ofNobody(&budget); p != nil {
			c.round, of = append(c.round, *p), append(of, o)
		}
	}
	if c.last {
		mine()
	}
	c.hands = slices.DeleteFunc(c.hands, func(h *hand) bool {
		if p, o := m.ofHand(h, &budget); p != nil {
			c.round, of = append(c.round, *p), append(of, o)
		}
		return len(h.acks) == 0
	})
	if !c.last {
		mine()
	}
	c.last = !c.last
	return of
}

func (m *Machine) head() cluster.CommitOf {
	return cluster.CommitOf{Group: m.group.ID, Partition: m.cfg.Partition, Leader: m.cfg.Leader, Reset: m.group.Reset}
}

// ofHand is what one hand acknowledged.
func (m *Machine) ofHand(h *hand, budget *int) (*part, cluster.CommitOf) {
	left := *budget - partBytes - escaped*len(h.member)
	if len(h.acks) == 0 || left < spanBytes {
		return nil, cluster.CommitOf{}
	}
	slices.Sort(h.acks)
	n := 0
	for ; n < len(h.acks); n++ {
		if n > 0 && h.acks[n] == h.acks[n-1]+1 {
			continue
		}
		if left < spanBytes {
			break
		}
		left -= spanBytes
	}
	p := &part{hand: h, acks: slices.Clone(h.acks[:n])}
	h.acks = slices.Delete(h.acks, 0, n)
	h.sent += n
	*budget = left
	of := m.head()
	of.Done = together(p.acks)
	if m.exclusive() {
		of.Assignment = h.assignment
	} else {
		of.Member, of.Epoch = h.member, h.epoch
	}
	return p, of
}

// ofNobody is what no member has a part in.
func (m *Machine) ofNobody(budget *int) (*part, cluster.CommitOf) {
	c := &m.commits
	left := *budget - partBytes
	if !m.own() || left < 0 {
		return nil, cluster.CommitOf{}
	}
	spend := func(n int) bool {
		if left < n {
			return false
		}
		left -= n
		return true
	}
	p, of := &part{start: c.start}, m.head()
	of.Start, c.start = c.start, 0
	c.doomed = cut(c.doomed, func(o ident.Offset) bool {
		s := m.window.find(o)
		if s == none {
			return true // expired
		}
		l := m.window.at(s).letter
		if !spend(intentBytes + escaped*len(l.Reason)) {
			return false
		}
		if l.stage == doomed {
			l.Sequence, l.stage = c.sequence, named
			c.sequence++
		}
		p.doomed, of.Intents = append(p.doomed, o), append(of.Intents, l.Intent)
		return true
	})
	c.published = cut(c.published, func(o ident.Offset) bool {
		if !spend(offsetBytes) {
			return false
		}
		p.published, of.Published = append(p.published, o), append(of.Published, o)
		return true
	})
	for _, s := range m.holes {
		if !spend(spanBytes) {
			break
		}
		p.holes, of.Done = append(p.holes, s), append(of.Done, s)
	}
	c.counts = cut(c.counts, func(o ident.Offset) bool {
		s := m.window.find(o)
		if s == none || m.window.at(s).state == acking || m.window.at(s).state == dying {
			return true // that says more
		}
		if !spend(countBytes) {
			return false
		}
		e := m.window.at(s)
		e.told = false
		p.counts, of.Counts = append(p.counts, o), append(of.Counts, cluster.Count{Offset: o, Deliveries: int(e.given)})
		return true
	})
	if p.start == 0 && len(of.Intents)+len(of.Published)+len(of.Done)+len(of.Counts) == 0 {
		return nil, cluster.CommitOf{}
	}
	slices.SortFunc(of.Counts, func(a, b cluster.Count) int { return cmp.Compare(a.Offset, b.Offset) })
	*budget = left
	return p, of
}

// cut takes from the front of a queue what is taken.
func cut(q []ident.Offset, take func(ident.Offset) bool) []ident.Offset {
	n := 0
	for n < len(q) && take(q[n]) {
		n++
	}
	return slices.Delete(q, 0, n)
}

// Committed ends a commit: the coordinator took its parts, or refused them because an
// epoch is not the current one.
func (m *Machine) Committed(now time.Time, taken []bool) {
	m.tick(now)
	round := m.commits.round
	m.commits.round = nil
	for i := range round {
		p := &round[i]
		ok := i < len(taken) && taken[i]
		switch {
		case p.hand != nil:
			p.hand.sent -= len(p.acks)
			if !ok {
				p.hand.refused = true
				m.drop(p.hand)
			}
			for _, o := range p.acks {
				if ok {
					m.acknowledged(o)
				} else {
					m.forgive(o, p.hand)
				}
			}
		case !ok:
			m.End() // leader or reset epoch: there is nothing else in it
		default:
			m.noted(p)
		}
	}
}

// Unknown ends a commit whose outcome nobody knows. It is repeated with the next Delta:
// what is done is united, so twice is as good as once.
func (m *Machine) Unknown(now time.Time) {
	m.tick(now)
	c := &m.commits
	round := c.round
	c.round = nil
	for i := range round {
		p := &round[i]
		if h := p.hand; h != nil {
			h.sent -= len(p.acks)
			h.acks = append(h.acks, p.acks...)
			for _, o := range p.acks {
				if s := m.window.find(o); s != none {
					m.window.at(s).doubt = true
				}
			}
			if m.hands[h.member] == h {
				c.queue(h)
			} else {
				m.drop(h)
			}
			continue
		}
		c.start = max(c.start, p.start)
		c.doomed = append(p.doomed, c.doomed...)
		c.published = append(p.published, c.published...)
		for _, o := range p.counts {
			if s := m.window.find(o); s != none {
				m.tell(m.window.at(s))
			}
		}
	}
}

// queue notes that a hand has something to commit.
func (c *commits) queue(h *hand) {
	if !slices.Contains(c.hands, h) {
		c.hands = append(c.hands, h)
	}
}

// tell notes that a record's count is to be committed.
func (m *Machine) tell(e *entry) {
	if !e.told {
		e.told = true
		m.commits.counts = append(m.commits.counts, e.offset)
	}
}

// acknowledged ends a record.
func (m *Machine) acknowledged(o ident.Offset) {
	if s := m.window.find(o); s != none {
		m.finish(s, nil)
	}
}

// forgive gives a record back whose acknowledgement does not count. That was no delivery
// that failed. Where it may count, only fresh progress can tell.
func (m *Machine) forgive(o ident.Offset, h *hand) {
	s := m.window.find(o)
	if s == none || m.window.at(s).hand != h {
		return
	}
	e := m.window.at(s)
	if e.doubt {
		m.End()
		return
	}
	m.resolve(e, ended(o))
	if o >= m.read || o < m.start {
		m.window.drop(s) // it is read when its turn comes, or never again
		return
	}
	e.given = max(e.given-1, 0)
	m.back(s)
}

// noted takes in that the coordinator knows what no member has a part in.
func (m *Machine) noted(p *part) {
	for _, s := range p.holes {
		m.holes.remove(s)
	}
	for _, o := range p.doomed {
		s := m.window.find(o)
		if s == none {
			continue
		}
		e := m.window.at(s)
		e.letter.stage = intended
		m.letters = append(m.letters, o)
		m.resolve(e, nil)
	}
	for _, o := range p.published {
		if s := m.window.find(o); s != none {
			if o >= m.start {
				m.dead.add(one(o))
			}
			m.finish(s, nil)
		}
	}
}

// finish ends a record; an error says to those who wait for it why not as they said.
func (m *Machine) finish(s slot, err error) {
	m.leave(s)
	e := m.window.at(s)
	m.letGo(e)
	m.resolve(e, err)
	if e.offset >= m.read {
		m.known.add(one(e.offset))
	}
	m.window.drop(s)
	m.skip()
}

// resolve tells those who wait for a record what became of it.
func (m *Machine) resolve(e *entry, err error) {
	if e.token == 0 {
		return
	}
	m.decide(e.token, e.offset, err)
	for _, t := range m.crowd[e.offset] {
		m.decide(t, e.offset, err)
	}
	delete(m.crowd, e.offset)
	e.token = 0
}

func (m *Machine) decide(t Token, o ident.Offset, err error) {
	w := m.waits[t]
	if w == nil {
		return
	}
	if err != nil {
		w.stale = append(w.stale, rpc.Stale{Offset: o, Err: err})
	}
	if w.left--; w.left == 0 {
		delete(m.waits, t)
		m.answers = append(m.answers, Answer{Token: t, Stale: w.stale})
	}
}

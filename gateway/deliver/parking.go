package deliver

import (
	"slices"

	"tidewire/internal/ident"
)

// parking is where the readers of a feed wait that have read all there is: by
// what they want, so that a record wakes those that want it and nobody looks at
// the others. What a message costs grows with its readers, not with everybody's.
//
// A reader is entered for as long as it reads the partition, and parked for as
// long as it waits. The parking grows with what is entered alone. It is guarded
// by the feed's mutex.
type parking struct {
	all      bay              // of those that want every record
	keys     map[string]*bay  // of those that want one key, or several
	prefixes map[string]*bay  // of those that want what begins with it
	lengths  []prefixLength   // of the prefixes, ascending: a key is looked up once for each that it has
	seats    map[*part][]seat // of those that want several keys
	choosy   int              // are parked with any of these
	ahead    bay              // of those that have read more of the log than the feed
}

// bay holds the readers that want the same.
type bay struct {
	what    string
	entered int
	parked  []*part // by part.spot
	// Those that want other keys too are here whether they are parked or not:
	// to park and to wake one costs nothing for each of its keys.
	several []member
}

// member is a reader of several keys in the bay of one.
type member struct {
	part *part
	seat int // in the part's seats
}

// seat is a bay in which a reader of several keys is a member.
type seat struct {
	bay    *bay
	member int
}

type prefixLength struct{ bytes, prefixes int }

// enter lets a reader in. keys are those that its filter names, if it names
// several, and owned the hashes that can be in the partition: it is not entered
// for the others.
func (g *parking) enter(p *part, keys []hashedKey, owned ident.HashRange) {
	p.spot = away
	switch m := &p.sub.match; {
	case m.all:
		p.bay = &g.all
	case m.prefix:
		if g.prefixes == nil {
			g.prefixes = map[string]*bay{}
		}
		p.bay = g.prefixes[m.text]
		if p.bay == nil {
			p.bay = &bay{what: m.text}
			g.prefixes[m.text] = p.bay
			g.count(len(m.text), 1)
		}
	case m.many == nil:
		p.bay = g.bayOf(m.text)
	default:
		var seats []seat
		for _, k := range keys {
			if !owned.Contains(k.hash) {
				continue
			}
			b := g.bayOf(k.key)
			b.several = append(b.several, member{p, len(seats)})
			seats = append(seats, seat{b, len(b.several) - 1})
			b.entered++
		}
		if g.seats == nil {
			g.seats = map[*part][]seat{}
		}
		g.seats[p] = seats
		return
	}
	p.bay.entered++
}

func (g *parking) bayOf(key string) *bay {
	b := g.keys[key]
	if b == nil {
		if g.keys == nil {
			g.keys = map[string]*bay{}
		}
		b = &bay{what: key}
		g.keys[key] = b
	}
	return b
}

// count adds n prefixes of a length.
func (g *parking) count(bytes, n int) {
	i, found := slices.BinarySearchFunc(g.lengths, bytes, func(l prefixLength, bytes int) int { return l.bytes - bytes })
	if !found {
		g.lengths = slices.Insert(g.lengths, i, prefixLength{bytes: bytes})
	}
	if g.lengths[i].prefixes += n; g.lengths[i].prefixes == 0 {
		g.lengths = slices.Delete(g.lengths, i, i+1)
	}
}

// leave lets a reader out again.
func (g *parking) leave(p *part) {
	g.unpark(p)
	switch m, b := &p.sub.match, p.bay; {
	case b == nil:
		for _, s := range g.seats[p] {
			g.stand(s)
		}
		delete(g.seats, p)
	default:
		if b.entered--; b.entered > 0 || m.all {
			return
		}
		if m.prefix {
			delete(g.prefixes, b.what)
			g.count(len(b.what), -1)
		} else {
			delete(g.keys, b.what)
		}
	}
}

// stand frees a seat; the bay's last member takes its place.
func (g *parking) stand(s seat) {
	b := s.bay
	last := len(b.several) - 1
	moved := b.several[last]
	b.several[s.member] = moved
	g.seats[moved.part][moved.seat].member = s.member
	b.several[last] = member{}
	b.several = b.several[:last]
	if b.entered--; b.entered == 0 {
		delete(g.keys, b.what)
	}
}

// Where a part is that is in no bay's list.
const (
	away  = -1 // not parked
	apart = -2 // parked, and wants several keys
)

// lot is the bay in whose list a reader is while it is parked; nil: in none, for
// it wants several keys.
func (g *parking) lot(p *part) *bay {
	if p.ahead {
		return &g.ahead
	}
	return p.bay
}

// park makes a reader wait for what it wants; one that is ahead of the feed
// waits for whatever comes, to look again.
func (g *parking) park(p *part, ahead bool) {
	p.ahead = ahead
	b := g.lot(p)
	if b != &g.all && b != &g.ahead {
		g.choosy++
	}
	if b == nil {
		p.spot = apart
		return
	}
	p.spot = int32(len(b.parked))
	b.parked = append(b.parked, p)
}

// holds reports whether a reader is parked.
func (g *parking) holds(p *part) bool {
	b := g.lot(p)
	if b == nil {
		return p.spot == apart
	}
	// Some lists are emptied without a look at who is in them.
	i := int(p.spot)
	return i >= 0 && i < len(b.parked) && b.parked[i] == p
}

// unpark lets a reader go that nobody wakes.
func (g *parking) unpark(p *part) {
	if !g.holds(p) {
		return
	}
	b := g.lot(p)
	if b != &g.all && b != &g.ahead {
		g.choosy--
	}
	if b != nil {
		last := len(b.parked) - 1
		b.parked[p.spot] = b.parked[last]
		b.parked[p.spot].spot = p.spot
		b.parked[last] = nil
		b.parked = b.parked[:last]
	}
	p.spot = away
}

// unchoosy takes out those that wait for whatever comes. spare is room for the
// list of the next ones.
func (g *parking) unchoosy(spare []*part) (woken []*part) {
	woken, g.all.parked = g.all.parked, spare
	if n := len(g.ahead.parked); n > 0 {
		woken = append(woken, g.ahead.parked...)
		clear(g.ahead.parked)
		g.ahead.parked = g.ahead.parked[:0]
	}
	return woken
}

// wanting takes out whom a block is for. They go on at from, where the block was
// added: all before it was read by them, or was not what they want.
func (g *parking) wanting(k *block, from stand, spare []*part) (woken []*part) {
	woken = g.unchoosy(spare)
	for i := range k.marks {
		if g.choosy == 0 {
			break
		}
		key := k.key(i)
		if len(key) == 0 {
			continue
		}
		if b := g.keys[string(key)]; b != nil {
			woken = g.empty(b, from, woken)
		}
		for _, l := range g.lengths {
			if l.bytes > len(key) {
				break
			}
			if b := g.prefixes[string(key[:l.bytes])]; b != nil {
				woken = g.empty(b, from, woken)
			}
		}
	}
	return woken
}

// everyone takes out all that are parked.
func (g *parking) everyone(from stand, spare []*part) (woken []*part) {
	woken = g.unchoosy(spare)
	if g.choosy == 0 {
		return woken
	}
	for _, b := range g.keys {
		woken = g.empty(b, from, woken)
	}
	for _, b := range g.prefixes {
		woken = g.empty(b, from, woken)
	}
	for p := range g.seats { // also those none of whose keys can be in the partition
		if p.spot == apart {
			woken = append(woken, g.release(p, from))
		}
	}
	return woken
}

// empty takes out those that are parked in a bay.
func (g *parking) empty(b *bay, from stand, woken []*part) []*part {
	for i, p := range b.parked {
		woken = append(woken, g.release(p, from))
		b.parked[i] = nil
	}
	b.parked = b.parked[:0]
	for _, m := range b.several {
		if m.part.spot == apart {
			woken = append(woken, g.release(m.part, from))
		}
	}
	return woken
}

func (g *parking) release(p *part, from stand) *part {
	g.choosy--
	p.spot = away
	p.pass(from)
	return p
}

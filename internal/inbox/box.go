package inbox

import (
	"time"

	"tidewire/internal/ident"
)

// Bounds of a box.
type Bounds struct {
	Entries int   // and as many callers
	Bytes   int64 // of the replies that are kept
}

// Box has an entry for each token that somebody waits at, or that is held. It is not safe
// for concurrent use.
//
// An entry that is not held lives as long as somebody waits at it. One that is held lives
// until its time: its first reply is kept for whoever waits later, and a second one is
// known for what it is.
type Box struct {
	bounds  Bounds
	entries map[Token]*entry
	times   times
	bytes   int64 // kept
	waiting int   // callers
}

type entry struct {
	due
	token    Token
	of       ident.Partition
	callers  []*Caller
	room     [1]*Caller // for most there is one
	answered bool
	kept     *Reply
}

// Caller waits for a reply at a token until a time.
type Caller struct {
	due
	Token Token
	Until time.Time
	Of    any // whom to tell
	in    *entry
}

// maxCallers bounds those who wait at one entry.
const maxCallers = 1024

// NewBox makes an empty box.
func NewBox(b Bounds) *Box { return &Box{bounds: b, entries: map[Token]*entry{}} }

// Entries and Bytes say how much there is.
func (b *Box) Entries() int { return len(b.entries) }

// Bytes is what the replies take that are kept.
func (b *Box) Bytes() int64 { return b.bytes }

func (b *Box) open(token Token) *entry {
	if e := b.entries[token]; e != nil {
		return e
	}
	if len(b.entries) >= b.bounds.Entries {
		return nil
	}
	e := &entry{token: token}
	e.due.entry, e.callers = e, e.room[:0]
	b.entries[token] = e
	return e
}

// Hold makes sure of an entry until a time, of whoever knows the earliest. False: there
// is no room.
func (b *Box) Hold(token Token, of ident.Partition, until time.Time) bool {
	e := b.open(token)
	if e == nil {
		return false
	}
	e.of = of
	if !e.held() || until.Before(e.at) {
		b.times.set(&e.due, until)
	}
	return true
}

// held says that the entry lives without anybody who waits.
func (e *entry) held() bool { return e.place > 0 }

// Waited is what becomes of who comes to wait.
type Waited uint8

const (
	Waiting Waited = iota
	Here           // the reply came before
	Spent          // it came before, and was not kept
	Crowded        // there is no room for another entry
)

// Wait lets a caller wait, in a new entry where there is none. The reply that is Here may
// be given to many, so nobody changes it.
func (b *Box) Wait(c *Caller) (*Reply, Waited) {
	e := b.entries[c.Token]
	switch {
	case e != nil && e.kept != nil:
		return e.kept, Here
	case e != nil && e.answered:
		return nil, Spent
	case b.waiting >= b.bounds.Entries || e != nil && len(e.callers) >= maxCallers:
		return nil, Crowded
	}
	if e = b.open(c.Token); e == nil {
		return nil, Crowded
	}
	c.in, c.due.caller = e, c
	e.callers = append(e.callers, c)
	b.waiting++
	b.times.set(&c.due, c.Until)
	return nil, Waiting
}

// Leave takes a caller out; one that does not wait any more is none.
func (b *Box) Leave(c *Caller) {
	e := c.in
	if e == nil {
		return
	}
	b.part(c)
	for i, other := range e.callers {
		if other == c {
			last := len(e.callers) - 1
			e.callers[i], e.callers[last] = e.callers[last], nil
			e.callers = e.callers[:last]
		}
	}
	if len(e.callers) == 0 && !e.held() {
		delete(b.entries, e.token)
	}
}

func (b *Box) part(c *Caller) {
	b.times.drop(&c.due)
	c.in = nil
	b.waiting--
}

// Knows says that there is an entry.
func (b *Box) Knows(token Token) bool { return b.entries[token] != nil }

// Answered says that there was a reply already, at an entry that is held.
func (b *Box) Answered(token Token) bool {
	e := b.entries[token]
	return e != nil && e.answered
}

// Put is what becomes of a reply.
type Put uint8

const (
	Taken Put = iota // those who wait have it, or it is kept
	Gone             // nobody waits, or there was a reply before
	Full             // there is no room to keep it, and nobody waits
)

// Put gives a reply to those who wait, and keeps it where the entry is held. Where there
// is no room to keep it those who wait have it all the same.
func (b *Box) Put(token Token, r *Reply) (callers []*Caller, v Put) {
	e := b.entries[token]
	if e == nil || e.answered {
		return nil, Gone
	}
	if e.held() {
		n := r.held()
		fits := b.bytes+n <= b.bounds.Bytes
		if !fits && len(e.callers) == 0 {
			return nil, Full
		}
		if fits {
			e.kept = r.Clone()
			b.bytes += n
		}
		e.answered = true
	}
	return b.release(e), Taken
}

// release lets all go who wait at an entry, which ends where nothing holds it.
func (b *Box) release(e *entry) []*Caller {
	callers := e.callers
	e.callers = nil
	for _, c := range callers {
		b.part(c)
	}
	if !e.held() {
		delete(b.entries, e.token)
	}
	return callers
}

// Kept is the reply that is kept at a token; nil: none is.
func (b *Box) Kept(token Token) *Reply {
	if e := b.entries[token]; e != nil {
		return e.kept
	}
	return nil
}

// Drop ends an entry, and gives those who waited.
func (b *Box) Drop(token Token) []*Caller {
	e := b.entries[token]
	if e == nil {
		return nil
	}
	b.times.drop(&e.due)
	if e.kept != nil {
		b.bytes -= e.kept.held()
		e.kept = nil
	}
	return b.release(e)
}

// Next is when the first time comes; false: there is none.
func (b *Box) Next() (time.Time, bool) { return b.times.next() }

// Expire ends what has had its time: callers, and entries with whoever waits there still.
func (b *Box) Expire(now time.Time) (late []*Caller, ended []Token) {
	for {
		at, ok := b.times.next()
		if !ok || at.After(now) {
			return late, ended
		}
		switch first := b.times.queue[0]; {
		case first.caller != nil:
			late = append(late, first.caller)
			b.Leave(first.caller)
		default:
			ended = append(ended, first.entry.token)
			late = append(late, b.Drop(first.entry.token)...)
		}
	}
}

// Of gives the partitions that entries are held for, each once.
func (b *Box) Of() map[ident.Partition]bool {
	out := map[ident.Partition]bool{}
	for _, e := range b.entries {
		out[e.of] = true
	}
	return out
}

// DropOf ends every entry of a partition.
func (b *Box) DropOf(p ident.Partition) (late []*Caller) {
	for token, e := range b.entries {
		if e.of == p {
			late = append(late, b.Drop(token)...)
		}
	}
	return late
}

// Callers is how many wait.
func (b *Box) Callers() int { return b.waiting }

// Clear ends everything.
func (b *Box) Clear() (callers []*Caller) {
	for token := range b.entries {
		callers = append(callers, b.Drop(token)...)
	}
	return callers
}

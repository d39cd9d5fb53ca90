package lease

import (
	"cmp"
	"math"
	"slices"
	"time"

	"tidewire/internal/ident"
)

type state uint8

const (
	available state = iota // for who takes it
	leased                 // until a deadline
	acking                 // acknowledged, and not known to be committed
	waiting                // for a time, after a delivery that failed
	dying                  // on its way to the dead-letter topic
)

// slot is a place in the window's memory.
type slot int32

const none slot = -1

// spokenOf is in the place of the answer where the member has spoken of the lease since.
const spokenOf = math.MaxUint64

// entry is a record that is not done.
type entry struct {
	offset ident.Offset
	until  time.Duration // leased: the deadline; waiting: the end of it
	hand   *hand         // leased and acking: whose
	latest *hand         // who had it last, as far as this leader knows; nil: it does not
	letter *letter       // dying
	token  Token         // who waits for it to be done; 0: nobody
	stamp  int64         // of the record: ms since 1970; 0: not read yet
	serial uint64        // leased: in which answer; 0: in one that passes for heard; or spokenOf
	hash   uint32
	given  int32 // leases given that count
	place  int32 // in the heap of its state; -1: in none
	state  state
	keyed  bool
	fresh  bool // this leader never leased it, and a former one may have
	failed bool // holds back later ones of its key
	held   bool // available, and held back
	unsure bool // its latest lease ended, and may never have come to anybody
	told   bool // its count waits to be committed
	doubt  bool // acknowledged in a commit of which nobody knows the outcome
}

// leasedOnce says that somebody may have had the record.
func (e *entry) leasedOnce() bool { return e.given > 0 || e.fresh }

// window holds the records that are not done.
type window struct {
	entries []entry
	free    []slot
	// order has those below the read position by offset, and places of records that
	// ended: they go when they are at the front or too many.
	order []place
	gone  int
	// aside has those that are known before they were read: at or above the read
	// position, or an intent below the log's start.
	aside map[ident.Offset]slot
}

type place struct {
	offset ident.Offset
	slot   slot // none: it ended
}

func (w *window) at(s slot) *entry { return &w.entries[s] }

// len is how many records are not done.
func (w *window) len() int { return len(w.entries) - len(w.free) }

func (w *window) find(o ident.Offset) slot {
	if i, ok := w.search(o); ok {
		return w.order[i].slot
	}
	if s, ok := w.aside[o]; ok {
		return s
	}
	return none
}

func (w *window) search(o ident.Offset) (int, bool) {
	return slices.BinarySearchFunc(w.order, o, func(p place, o ident.Offset) int { return cmp.Compare(p.offset, o) })
}

func (w *window) make(e entry) slot {
	e.place = -1
	if n := len(w.free); n > 0 {
		s := w.free[n-1]
		w.free = w.free[:n-1]
		w.entries[s] = e
		return s
	}
	w.entries = append(w.entries, e)
	return slot(len(w.entries) - 1)
}

// add takes in the record at the read position.
func (w *window) add(e entry) slot {
	s := w.make(e)
	w.order = append(w.order, place{e.offset, s})
	return s
}

// addAside takes in a record that is known before it is read.
func (w *window) addAside(e entry) slot {
	s := w.make(e)
	if w.aside == nil {
		w.aside = map[ident.Offset]slot{}
	}
	w.aside[e.offset] = s
	return s
}

// reached says that a record from aside was read.
func (w *window) reached(s slot) {
	o := w.at(s).offset
	delete(w.aside, o)
	w.order = append(w.order, place{o, s})
}

// drop forgets a record, which ended.
func (w *window) drop(s slot) {
	o := w.at(s).offset
	if i, ok := w.search(o); ok {
		w.order[i].slot = none
		w.gone++
		w.tidy()
	} else {
		delete(w.aside, o)
	}
	w.entries[s] = entry{place: -1}
	w.free = append(w.free, s)
	if len(w.free) == len(w.entries) {
		w.empty()
	}
}

// empty forgets where nothing is, and gives back what an idle group need not hold.
func (w *window) empty() {
	if cap(w.entries) > 32 {
		*w = window{aside: w.aside}
		return
	}
	w.entries, w.free, w.order, w.gone = w.entries[:0], w.free[:0], w.order[:0], 0
}

func (w *window) tidy() {
	for len(w.order) > 0 && w.order[0].slot == none {
		w.order = w.order[1:]
		w.gone--
	}
	if w.gone > len(w.order)/2 {
		w.order = slices.DeleteFunc(w.order, func(p place) bool { return p.slot == none })
		w.gone = 0
	}
}

// all are the records below the read position, by offset. None of them may be dropped
// meanwhile.
func (w *window) all(yield func(slot, *entry) bool) {
	for _, p := range w.order {
		if p.slot != none && !yield(p.slot, w.at(p.slot)) {
			return
		}
	}
}

// those are the slots of the records of which yes is true, those aside last.
func (w *window) those(yes func(*entry) bool) (s []slot) {
	for at, e := range w.all {
		if yes(e) {
			s = append(s, at)
		}
	}
	for _, at := range w.asideWithin(math.MinInt64, math.MaxInt64) {
		if yes(w.at(at)) {
			s = append(s, at)
		}
	}
	return s
}

// asideWithin are those aside with offsets from a up to b, by offset.
func (w *window) asideWithin(a, b ident.Offset) (s []slot) {
	for o, at := range w.aside {
		if o >= a && o < b {
			s = append(s, at)
		}
	}
	slices.SortFunc(s, func(a, b slot) int { return cmp.Compare(w.at(a).offset, w.at(b).offset) })
	return s
}

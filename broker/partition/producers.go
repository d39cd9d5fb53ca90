package partition

import (
	"container/list"
	"slices"
	"time"

	"tidewire/internal/ident"
)

const (
	// WindowRecords is how many of a producer's last records are remembered.
	WindowRecords = 1024
	// ProducerAge is how long a producer is remembered after its last record,
	// in the log's time.
	ProducerAge = time.Hour
	// MaxProducers bounds the producers of one partition. Where there are more,
	// the longest silent one is forgotten for a new one, if it has been silent for
	// CrowdedAge: whoever repeats does so within seconds.
	MaxProducers = 1 << 17
	CrowdedAge   = 2 * time.Minute
	// MaxRuns bounds the runs of all producers of one partition, 40 B each. Past
	// it a producer that goes on keeps its last CrowdedRecords only: older
	// repeats are still known as duplicates, but no longer where.
	MaxRuns        = 1 << 20
	CrowdedRecords = 64
)

// run is consecutive sequences at consecutive offsets, or voids, of one time.
type run struct {
	sequence  int64
	offset    ident.Offset // meaningless for voids
	count     int64
	timestamp int64 // ms since 1970
	void      bool
}

// producer is what a partition remembers of one. The cluster's own producers may leave
// numbers out and come back to them: one record that cannot be kept does not hold up the
// others.
type producer struct {
	id      ident.ProducerID
	next    int64 // the sequence expected next; of the cluster's own: behind the highest
	last    int64 // log time of its last record
	runs    []run // oldest first
	room    []run // in which runs lie; what trim drops leaves its beginning free
	records int64 // in runs
	place   *list.Element
}

// find looks a sequence up in the window.
func (p *producer) find(sequence int64) (run, bool) {
	for i := len(p.runs) - 1; i >= 0; i-- { // repeats are mostly recent
		r := p.runs[i]
		if sequence >= r.sequence && sequence < r.sequence+r.count {
			r.offset += ident.Offset(sequence - r.sequence)
			return r, true
		}
	}
	return run{}, false
}

// add remembers the next record, or void, of the producer. A sequence that
// does not follow (which only the log itself may bring) starts the window anew.
func (p *producer) add(r run, window int64) {
	if r.sequence != p.next && !p.id.System() {
		p.runs, p.records, p.next = p.runs[:0], 0, 0
	}
	p.next, p.last = max(p.next, r.sequence+r.count), r.timestamp
	p.records += r.count
	if n := len(p.runs); n > 0 && p.runs[n-1].joins(r) {
		p.runs[n-1].count += r.count
	} else {
		p.push(r)
	}
	p.trim(window)
}

// push adds a run behind the others. Where there is no room behind them they move to what
// the dropped ones have left, if that is worth it: a full window moves once in many records.
func (p *producer) push(r run) {
	if len(p.runs) == cap(p.runs) {
		if free := cap(p.room) - cap(p.runs); free > len(p.runs)/8 {
			p.runs = append(p.room[:0], p.runs...)
		} else {
			p.runs = slices.Grow(p.runs, 1)
			p.room = p.runs
		}
	}
	p.runs = append(p.runs, r)
}

func (a run) joins(b run) bool {
	return a.void == b.void && a.timestamp == b.timestamp &&
		a.sequence+a.count == b.sequence && (a.void || a.offset+ident.Offset(a.count) == b.offset)
}

// trim drops the oldest runs that the window does not need.
func (p *producer) trim(window int64) {
	drop := 0
	for p.records-p.runs[drop].count >= window {
		p.records -= p.runs[drop].count
		drop++
	}
	p.runs = p.runs[drop:]
}

// producers is all that a partition remembers of producers, bounded in number
// and in log time. The cluster's own do not expire: who repeats one of their records may
// come after any time. Only a crowd pushes one of them out, after all others.
type producers struct {
	byID map[ident.ProducerID]*producer
	age  *list.List // of *producer, the longest silent first
	own  *list.List // the same of the cluster's own
	runs int        // of all of them
}

func newProducers() producers {
	return producers{byID: map[ident.ProducerID]*producer{}, age: list.New(), own: list.New()}
}

// listOf is where a producer has its place.
func (s *producers) listOf(id ident.ProducerID) *list.List {
	if id.System() {
		return s.own
	}
	return s.age
}

// oldest is who is forgotten first.
func (s *producers) oldest() *list.Element {
	if e := s.age.Front(); e != nil {
		return e
	}
	return s.own.Front()
}

// get finds a producer that is still remembered at log time now.
func (s *producers) get(id ident.ProducerID) *producer { return s.byID[id] }

// add remembers a record of a producer.
func (s *producers) add(id ident.ProducerID, r run) {
	p := s.byID[id]
	if p == nil {
		if len(s.byID) >= MaxProducers {
			s.forget(s.oldest())
		}
		p = &producer{id: id, next: r.sequence}
		p.place = s.listOf(id).PushBack(p)
		s.byID[id] = p
	} else {
		s.listOf(id).MoveToBack(p.place)
	}
	window := int64(WindowRecords)
	if s.runs >= MaxRuns && !id.System() {
		window = CrowdedRecords
	}
	before := len(p.runs)
	p.add(r, window)
	s.runs += len(p.runs) - before
}

// expire forgets the producers whose last record is older than the age.
func (s *producers) expire(now int64) {
	for e := s.age.Front(); e != nil; e = s.age.Front() {
		if now-e.Value.(*producer).last <= ProducerAge.Milliseconds() {
			return
		}
		s.forget(e)
	}
}

func (s *producers) forget(e *list.Element) {
	p := e.Value.(*producer)
	s.listOf(p.id).Remove(e)
	delete(s.byID, p.id)
	s.runs -= len(p.runs)
}

// takes reports whether one more producer can be remembered.
func (s *producers) takes(now int64) bool {
	return len(s.byID) < MaxProducers || now-s.oldest().Value.(*producer).last >= CrowdedAge.Milliseconds()
}

package rpc

import (
	"errors"
	"slices"
	"sync"
	"time"

	"tidewire/internal/fault"
)

// Append gives a batch to the broker, over the one stream that all batches for it
// take. It never waits. done is called exactly once, perhaps before Append returns,
// and must be quick: the answers of others wait for it. A batch that surely reached
// no log is LeaderUnavailable; one that was sent and not answered is UnknownOutcome.
// The bytes of the batch are given away, whatever becomes of them.
func (r *Peer) Append(req Append, done func(Appended)) { r.appends.append(req, done) }

// appender holds the stream of the moment.
type appender struct {
	peer    *Peer
	streams sync.WaitGroup

	mu      sync.Mutex
	current *appendStream // nil: none
	ended   bool
	// Who could not be reached is not tried again for a while.
	cause error // nil: it was reached
	since time.Time
	pause time.Duration
}

// firstPause and lastPause bound how long a node that cannot be reached is left alone.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// tried notes whether the node was reached, which who refuses a stream was.
func (a *appender) tried(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var end *ending
	if err == nil || errors.As(err, &end) {
		a.cause, a.pause = nil, 0
		return
	}
	a.cause, a.since, a.pause = err, time.Now(), min(max(firstPause, a.pause*8/5), lastPause)
}

func (a *appender) append(req Append, done func(Appended)) {
	for {
		s, err := a.stream()
		if err != nil {
			done(Appended{Err: err})
			return
		}
		if s.put(req, done) {
			return
		}
		a.drop(s) // it broke meanwhile
	}
}

func (a *appender) stream() (*appendStream, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended || a.peer.ctx.Err() != nil {
		return nil, fault.New(fault.LeaderUnavailable, "the connection to %s was closed", a.peer.name())
	}
	if a.current == nil {
		if a.cause != nil && time.Since(a.since) < a.pause {
			return nil, lost(fault.LeaderUnavailable, a.peer.name(), a.cause)
		}
		s := newAppendStream(a.peer)
		a.current = s
		a.streams.Go(func() { s.run(); a.drop(s) })
	}
	return a.current, nil
}

func (a *appender) drop(s *appendStream) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current == s {
		a.current = nil
	}
}

// wait returns once no stream runs; there will be none after it.
func (a *appender) wait() {
	a.mu.Lock()
	a.ended = true
	a.mu.Unlock()
	a.streams.Wait()
}

// flight is a batch that is not answered.
type flight struct {
	bytes int
	done  func(Appended)
}

// appendStream is one Append stream. What is guarded is guarded by out.mu.
type appendStream struct {
	peer *Peer
	out  *outlet[appendItem]
	line *framed
	// message is being sent; by one at a time.
	message encoder

	flights  map[uint64]flight
	bytes    int    // of flights
	last     uint64 // id given last
	sent     uint64 // highest id that was handed to the stream, or may have been
	received uint64 // bytes of responses, with frameCost for each
}

func newAppendStream(r *Peer) *appendStream {
	s := &appendStream{peer: r, flights: map[uint64]flight{}}
	s.out = newOutlet(cutItems, s.send, func() bool { return s.bytes+frameCost*len(s.flights) <= calmBytes })
	s.out.busy = true // until the stream is open
	return s
}

// put takes a batch; false: the stream has ended.
func (s *appendStream) put(req Append, done func(Appended)) bool {
	o := s.out
	o.mu.Lock()
	if o.ended {
		o.mu.Unlock()
		return false
	}
	if len(s.flights) > 0 && (len(s.flights) >= maxUnanswered || s.bytes+len(req.Batch) > maxUnansweredBytes) {
		n, bytes := len(s.flights), s.bytes
		o.mu.Unlock()
		done(Appended{Err: fault.New(fault.LeaderUnavailable, "%s is behind: it has not answered %d batches of %d bytes", s.peer.name(), n, bytes)})
		return true
	}
	s.last++
	s.flights[s.last] = flight{len(req.Batch), done}
	s.bytes += len(req.Batch)
	flush := o.putLocked(appendItem{s.last, req})
	o.mu.Unlock()
	if flush {
		_ = o.flush() // a broken stream ends receive
	}
	return true
}

// send is called by one at a time.
func (s *appendStream) send(items []appendItem) error {
	s.out.mu.Lock()
	s.sent = items[len(items)-1].id
	m := appendRequest{items, s.received}
	s.out.mu.Unlock()
	m.encode(&s.message)
	return s.line.send(frameMessage, &s.message)
}

// run opens the stream, and keeps it until it breaks or the peer ends.
func (s *appendStream) run() {
	line, err := s.peer.open(s.peer.ctx, methodAppend)
	s.peer.appends.tried(err)
	if err != nil {
		s.out.open(true)
		s.end(err)
		return
	}
	s.line = line
	var sender sync.WaitGroup
	sender.Go(func() { s.out.run(line.ctx) })
	s.out.open(false)
	err = s.receive()
	line.close()
	s.end(err)
	sender.Wait()
}

func (s *appendStream) receive() error {
	var m appendResponse
	var done []func(Appended)
	for {
		n, err := s.next(&m)
		if err != nil {
			return err
		}
		o := s.out
		o.mu.Lock()
		s.received += n + frameCost
		done = done[:0]
		for i := range m.items {
			f := s.flights[m.items[i].id]
			delete(s.flights, m.items[i].id)
			s.bytes -= f.bytes
			done = append(done, f.done)
		}
		o.mu.Unlock()
		for i := range m.items {
			if done[i] != nil { // else it is an answer to what was not asked
				done[i](m.items[i].Appended)
			}
		}
		clear(done)
		clear(m.items)
	}
}

// next receives a message of n bytes.
func (s *appendStream) next(m *appendResponse) (n uint64, err error) {
	b, _, err := s.line.next()
	if err == nil {
		err = m.decode(b)
	}
	return uint64(len(b)), err
}

// end answers all that was not answered.
func (s *appendStream) end(err error) {
	unsent := s.out.end()
	o := s.out
	o.mu.Lock()
	flights, taken := s.flights, s.sent
	s.flights = nil
	o.mu.Unlock()
	if len(flights) == 0 {
		return
	}
	// What was not sent never reached a log; nor did what came after the last batch
	// that the other end says to have taken in; nor anything if it refused the stream.
	answer, refused := reply(err)
	if refused {
		taken = 0
	}
	var end *ending
	if errors.As(err, &end) {
		taken = min(taken, end.taken)
	}
	for _, it := range unsent {
		taken = min(taken, it.id-1)
	}
	none, unknown := lost(fault.LeaderUnavailable, s.peer.name(), err), lost(fault.UnknownOutcome, s.peer.name(), err)
	if refused && answer != nil {
		none = answer
	}
	ids := make([]uint64, 0, len(flights))
	for id := range flights {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		if id > taken {
			flights[id].done(Appended{Err: none})
		} else {
			flights[id].done(Appended{Err: unknown})
		}
	}
}

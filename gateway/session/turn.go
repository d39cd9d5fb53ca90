package session

import (
	"slices"
	"time"

	"tidewire/gateway/deliver"
	"tidewire/gateway/reply"
	"tidewire/internal/wire"
)

const (
	// frameBytes is how much a turn gathers before it writes.
	frameBytes = 64 << 10
	// turnBytes and turnMessages are one subscription's part of a turn.
	turnBytes    = 16 << 10
	turnMessages = 256
	// cursorEvery is the least time between two cursors of a subscription. One
	// that is due goes with what it is given; cursorLate after it has moved it
	// goes alone, which keeps the promise of a cursor within 2 s of moving.
	cursorEvery = time.Second
	cursorLate  = 1500 * time.Millisecond
)

// outlet is the session's writing side: what turns work on. It belongs to
// whoever has the turn.
type outlet struct {
	ready    []*subscription // that may have something to read
	moved    []*subscription // since their last cursor
	cursorAt time.Time       // when cursors are due; zero: nothing has moved
	pingAt   time.Time
	every    time.Duration // between pings
	heardAt  time.Time     // when the client was last known to live
	farewell farewell
	partAt   time.Time // after the goodbye
	code     int       // of the close; 0: the client's, or none
}

// turn does what there is to do for the session, as far as that goes without
// waiting.
func (s *session) turn(d *desk) outcome {
	out := &s.outlet
	d.reset()
	pong, verdict, drain, over := s.collect(d)
	if over {
		return s.quit()
	}
	if verdict != nil {
		return s.finish(d, *verdict)
	}
	if pong != nil {
		d.control = appendControl(d.control, opPong, pong)
	}
	now := time.Now()
	if !out.pingAt.After(now) {
		if !s.ping(d, now) {
			return s.finish(d, silent)
		}
		s.refresh(now)
	} else if next := now.Add(out.every); next.Before(out.pingAt) {
		out.pingAt = next // somebody has joined a group
	}
	if drain && out.farewell == none {
		s.goodbye(d, now)
	}
	if !out.cursorAt.IsZero() && !out.cursorAt.After(now) {
		s.cursors(d, now)
	}
	to := rest
	if out.farewell == none {
		to = s.pull(d, now)
	} else if s.parted(now) {
		return s.finish(d, restart)
	}
	s.slot.Alarm(s.nextAlarm(now))
	return s.write(d, to, now)
}

// nextAlarm is when a turn is due whatever happens.
func (s *session) nextAlarm(now time.Time) time.Time {
	out := &s.outlet
	at := out.pingAt
	if !out.cursorAt.IsZero() && out.cursorAt.Before(at) {
		at = out.cursorAt
	}
	if out.partAt.After(now) && out.partAt.Before(at) { // later on it is the last answer that brings the end
		at = out.partAt
	}
	return at
}

// collect takes what others have left for the turn.
func (s *session) collect(d *desk) (pong []byte, v *verdict, drain, over bool) {
	out := &s.outlet
	s.mu.Lock()
	if len(s.out) > 0 {
		d.line(s.out)
		s.sentLocked()
	}
	if s.out = s.out[:0]; s.inFlight == 0 || cap(s.out) > keepBytes {
		s.out = nil // nothing is to come, or too much came
	}
	pong, s.pong = s.pong, nil
	out.ready = append(out.ready, s.ready...)
	clear(s.ready)
	s.ready = s.ready[:0]
	gone := s.gone
	s.gone = nil
	v, drain, over = s.verdict, s.draining, s.over
	out.every = s.beat
	s.relief.Signal()
	s.mu.Unlock()
	for _, x := range gone {
		out.ready = slices.DeleteFunc(out.ready, func(q *subscription) bool { return q == x })
		out.moved = slices.DeleteFunc(out.moved, func(q *subscription) bool { return q == x })
		s.close(x)
	}
	return pong, v, drain, over
}

// ping pings the client; false: it has been silent for too long. What was heard of it is
// a sign of life of its members.
func (s *session) ping(d *desk, now time.Time) bool {
	out := &s.outlet
	if s.socket.heard.Swap(false) || !s.reading.Load() {
		out.heardAt = now
		s.hear()
	}
	if now.Sub(out.heardAt) >= maxUnheardPings*s.m.cfg.Ping {
		return false
	}
	out.pingAt = now.Add(out.every)
	d.control = appendControl(d.control, opPing, nil)
	return true
}

// pull fills the frame with messages; subscriptions take turns.
func (s *session) pull(d *desk, now time.Time) outcome {
	out := &s.outlet
	for n := len(out.ready); n > 0 && len(d.frame) < frameBytes; n-- {
		x := out.ready[0]
		switch s.serve(d, x, now) {
		case behind:
			return behind // x stays at the front
		case more:
			copy(out.ready, out.ready[1:])
			out.ready[len(out.ready)-1] = x
		default:
			copy(out.ready, out.ready[1:])
			out.ready[len(out.ready)-1] = nil
			out.ready = out.ready[:len(out.ready)-1]
		}
	}
	if len(out.ready) > 0 {
		return more
	}
	return rest
}

// serve gives one subscription its part of the turn.
func (s *session) serve(d *desk, x *subscription, now time.Time) outcome {
	s.mu.Lock()
	x.queued = false // from here on a notification queues it again
	credit := x.credit
	s.mu.Unlock()
	sent, to := s.take(d, x, credit)
	due := sent > 0 && now.Sub(x.toldAt) >= cursorEvery
	if !due {
		s.note(x, now.Add(cursorLate))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if due && !x.gone {
		s.tell(d, x, now)
	}
	if x.credit != unbounded {
		x.credit -= int64(sent)
	}
	if to == rest || x.gone || x.credit == 0 || x.queued {
		return rest // credit, or what queued it, brings it back
	}
	x.queued = true
	return to
}

// take puts a subscription's part of the turn into the frame.
func (s *session) take(d *desk, x *subscription, credit int64) (sent int, to outcome) {
	bytes, count := 0, 0
	defer func() { d.messages(x, count) }()
	for bytes < turnBytes {
		most := turnMessages
		if credit != unbounded {
			if most = int(min(credit-int64(sent), turnMessages)); most <= 0 {
				return sent, more
			}
		}
		switch ev := x.sub.Next((*life)(s), deliver.Limit{Messages: most, Bytes: turnBytes - bytes, Ring: !d.logs}); ev.Kind {
		case deliver.Idle:
			return sent, rest
		case deliver.Busy:
			return sent, more
		case deliver.Behind:
			return sent, behind
		case deliver.Messages:
			d.turn = append(d.turn, ev.Run)
			count += ev.Run.Len()
			sent += ev.Run.Len()
			bytes += len(ev.Run.Lines())
		case deliver.Lost:
			d.messages(x, count)
			count = 0
			d.line(gapLine(x.name, ev.Gap))
		case deliver.Stuck:
			d.messages(x, count)
			count = 0
			d.line(reply.FrameFor(0, x.name, ev.Err))
		case deliver.Ended:
			d.messages(x, count)
			count = 0
			d.line(reply.FrameFor(0, x.name, ev.Err))
			s.mu.Lock()
			if !x.gone {
				s.dropLocked(x)
			}
			s.mu.Unlock()
			s.schedule()
			return sent, rest
		}
	}
	return sent, more
}

// note has the cursor of a subscription that has moved told at a time.
func (s *session) note(x *subscription, at time.Time) {
	out := &s.outlet
	if x.dirty || !x.sub.Moved() {
		return
	}
	x.dirty = true
	out.moved = append(out.moved, x)
	if out.cursorAt.IsZero() {
		out.cursorAt = at
	}
}

// refresh has the cursors told now of all that have moved, be it only past what
// their filters do not let through. That wakes nobody, so it is looked for when
// there is something to say anyway: a ping, or a goodbye.
func (s *session) refresh(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.subs {
		x.sub.Refresh()
		s.note(x, now)
	}
}

// cursors tells where the subscriptions stand that have moved.
func (s *session) cursors(d *desk, now time.Time) {
	out := &s.outlet
	for len(out.moved) > 0 {
		s.tell(d, out.moved[len(out.moved)-1], now)
	}
	out.cursorAt = time.Time{}
}

// tell says where a subscription stands.
func (s *session) tell(d *desk, x *subscription, now time.Time) {
	if out := &s.outlet; x.dirty {
		x.dirty = false
		out.moved = slices.DeleteFunc(out.moved, func(q *subscription) bool { return q == x })
		if len(out.moved) == 0 {
			out.cursorAt = time.Time{}
		}
	}
	x.toldAt = now
	var room [192]byte // for the cursor of one partition
	text := append(x.sub.AppendCursor(append(room[:0], '"')), '"')
	d.head = wire.Open(d.head[:0], "cursor").Str("sub", x.name).Raw("cursor", text).Close()
	d.line(d.head)
}

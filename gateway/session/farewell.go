package session

import (
	"time"

	"tidewire/gateway/deliver"
	"tidewire/gateway/reply"
	"tidewire/gateway/seats"
)

// partingTime lies between the goodbye and the close: what the client has sent
// before it read the goodbye gets its answer.
const partingTime = 200 * time.Millisecond

// farewell is how far a drain has come.
type farewell uint8

const (
	none farewell = iota
	said
)

// verdict is how the server ends a connection.
type verdict struct {
	code   int
	reason string
}

var (
	silent  = verdict{reply.CloseSilent, "no byte for two pings"}
	restart = verdict{reply.CloseRestart, "restart"}
)

// goodbye tells the client where it stands and when to come back. Nothing is
// delivered from then on, so the cursors hold.
func (s *session) goodbye(d *desk, now time.Time) {
	s.outlet.farewell = said
	s.outlet.partAt = now.Add(partingTime)
	s.refresh(now)
	s.cursors(d, now)
	d.line(reply.Closing("draining", s.m.leaving().Return(now).String()))
}

// leaving is how the clients leave, once the connections are refused.
func (m *Manager) leaving() seats.Parting {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.parting
}

// parted reports whether the time after the goodbye is over, every publish is
// answered and every answer written.
func (s *session) parted(now time.Time) bool {
	if s.outlet.partAt.After(now) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inFlight == 0 && len(s.questions) == 0 && len(s.out) == 0 && !s.deliveringLocked()
}

// finish closes the connection by the book: what is in the outbox, where the
// subscriptions stand, then the closing handshake. That waits for the client,
// so somebody else does it.
func (s *session) finish(d *desk, v verdict) outcome {
	now := time.Now()
	s.refresh(now)
	s.cursors(d, now)
	b, count := d.take(), s.count(d.runs, now)
	if v.code >= 4000 {
		s.logger().Info("closing a connection", "code", v.code, "reason", v.reason)
	}
	s.m.open.Go(func() {
		if len(b) > 0 {
			if err := s.socket.Rest(b); err != nil {
				s.lost()
				return
			}
			count()
		}
		s.handshake(v)
		s.outlet.code = v.code
		s.quit()
	})
	return kept
}

// handshake says close, and gives the client time to say it too: the reader
// hears of that.
func (s *session) handshake(v verdict) {
	if s.socket.say(v.code, v.reason) != nil {
		return
	}
	patience := time.NewTimer(closeTimeout)
	defer patience.Stop()
	select {
	case <-s.ended: // the client has answered, or gone
	case <-patience.C:
	}
}

// lost ends a connection that cannot be written to.
func (s *session) lost() outcome {
	if s.socket.Stuck() {
		s.tooSlow("it took nothing")
	}
	return s.quit()
}

// tooMuch ends a connection that would have the node hold more than it may for
// those who do not take it. It is in the midst of a frame, so it is not told why.
func (s *session) tooMuch() outcome {
	s.tooSlow("the node holds as much as it may for clients that do not read")
	s.socket.Abandon()
	return s.quit()
}

func (s *session) tooSlow(why string) {
	s.m.cfg.Deliveries.Slow.Inc()
	s.logger().Info("closed a slow consumer", "transport", deliver.WebSocket, "code", reply.CloseSlowConsumer, "reason", why)
	s.outlet.code = reply.CloseSlowConsumer
}

// quit ends the writing side: there are no more turns.
func (s *session) quit() outcome {
	s.slot.Leave()
	s.end()
	_ = s.socket.Close()
	s.writing.Done()
	return kept
}

package session

import (
	"slices"
	"time"

	"tidewire/gateway/deliver"
)

// write sends what the turn has put together. A socket that does not take all
// of it at once gets a goroutine for the rest, and no turn until it has it.
func (s *session) write(d *desk, to outcome, now time.Time) outcome {
	b := d.text()
	if len(d.control) > 0 {
		b = slices.Concat(d.control, b)
	}
	if len(b) == 0 {
		return to
	}
	n, err := s.socket.Try(d.attempt, b)
	switch {
	case err != nil:
		return s.lost()
	case n == len(b):
		for _, r := range d.runs {
			d.tally.Wrote(r, now)
			s.conn.Out.Add(int64(r.Len()))
		}
		return to
	}
	s.m.metrics.waiting.Inc()
	share := s.m.cfg.Crew.Owe(len(b) - n)
	if share == nil {
		return s.tooMuch()
	}
	left, count := slices.Clone(b[n:]), s.count(d.runs, now)
	s.m.open.Go(func() {
		err := s.socket.Rest(left)
		share.Close()
		if err != nil {
			s.lost()
			return
		}
		count()
		s.giveBack(more)
	})
	return kept
}

// count notes runs that are about to be written, for when they are: it keeps none
// of them, for they may be large, and their reader slow.
func (s *session) count(runs []deliver.Run, now time.Time) (wrote func()) {
	tally, messages := s.m.cfg.Deliveries.Tally(deliver.WebSocket), int64(0)
	for _, r := range runs {
		tally.Wrote(r, now)
		messages += int64(r.Len())
	}
	return func() {
		tally.Tell()
		s.conn.Out.Add(messages)
	}
}

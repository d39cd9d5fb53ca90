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
	left, runs := slices.Clone(b[n:]), slices.Clone(d.runs)
	s.m.open.Go(func() {
		if _, err := s.socket.Write(left); err != nil {
			s.lost()
			return
		}
		s.wrote(runs)
		s.giveBack(more)
	})
	return kept
}

func (s *session) wrote(runs []deliver.Run) {
	for _, r := range runs {
		s.m.cfg.Deliveries.Wrote(deliver.WebSocket, r)
		s.conn.Out.Add(int64(r.Len()))
	}
}

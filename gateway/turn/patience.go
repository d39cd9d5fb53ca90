package turn

import "time"

// steps is how many times per slow the socket looks whether bytes were taken.
const steps = 4

// patience waits with a client that takes bytes, however few, and ends after a
// time without one. That a write goes on is not all there is to see: the socket
// takes nothing more before a large part of what it holds has left, and of that a
// slow client takes bytes for long before.
type patience struct {
	slow   time.Duration
	last   time.Time // that a byte was taken
	queued int       // bytes that the kernel held then
}

func newPatience(slow time.Duration, now time.Time, queued int) patience {
	return patience{slow: slow, last: now, queued: queued}
}

// over looks at what a step has brought: bytes that the socket took in, and what
// it holds now.
func (p *patience) over(now time.Time, written, queued int) bool {
	was := p.queued
	p.queued = queued
	if written > 0 || queued < was {
		p.last = now
	}
	return now.Sub(p.last) >= p.slow
}

// queued is how many bytes the kernel holds that the client's has not taken;
// always the same where it does not say.
func (s *Socket) queued() (bytes int) {
	if s.raw != nil {
		_ = s.raw.Control(func(fd uintptr) { bytes = queuedBytes(int(fd)) }) // closed: the next write says so
	}
	return bytes
}

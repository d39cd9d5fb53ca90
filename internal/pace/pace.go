// Package pace finds how many bytes may be under way at once so that none of
// them waits for long, whatever the speed of what takes them. A bound in bytes
// alone is a bound in time only at one speed: 64 MiB are nothing to a good disk
// and eight seconds to one that its neighbours keep busy, and by then whoever
// waits has given up, cannot know whether the bytes were kept, and sends them
// again.
package pace

import (
	"math"
	"time"
)

// Bounds of what may be under way.
type Bounds struct {
	Least, Most int64         // bytes; the limit stays between them
	Start       int64         // and begins here
	Wait        time.Duration // no byte should be under way for longer
}

// Pace is a limit that follows what is seen: it falls to what was taken within
// Wait once something waited longer, and grows by what is taken while things go
// quickly and somebody wanted more: a big window that nobody needs would only
// be filled when things turn slow. It reads no clock and is not safe for
// concurrent use.
type Pace struct {
	bounds Bounds
	limit  float64
	taken  float64   // bytes, each counting less the longer ago it was taken: by 1/e within Wait
	last   time.Time // of the last change of taken
	wanted bool      // the limit held somebody back since it last grew
}

// New makes a Pace that has seen nothing yet.
func New(b Bounds) *Pace {
	return &Pace{bounds: b, limit: float64(b.Start)}
}

// Admits says whether n more bytes may be under way where busy bytes are.
// Something may always be under way, however big it is.
func (p *Pace) Admits(busy, n int64) bool {
	if busy == 0 || busy+n <= p.Limit() {
		return true
	}
	p.wanted = true
	return false
}

// Limit is the number of bytes that may be under way.
func (p *Pace) Limit() int64 { return int64(p.limit) }

// Taken notes that n bytes are under way no more, the oldest of which waited
// so long.
func (p *Pace) Taken(now time.Time, n int64, waited time.Duration) {
	if !p.last.IsZero() {
		p.taken *= math.Exp(-float64(now.Sub(p.last)) / float64(p.bounds.Wait))
	}
	p.taken += float64(n)
	p.last = now
	switch {
	case waited > p.bounds.Wait:
		p.limit = min(p.limit, p.taken) // at a steady rate, taken is what goes in Wait
	case waited < p.bounds.Wait/2 && p.wanted:
		p.limit += float64(n)
		p.wanted = false
	}
	p.limit = min(max(p.limit, float64(p.bounds.Least)), float64(p.bounds.Most))
}

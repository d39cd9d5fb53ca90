package sim

import (
	"time"
	"unsafe"
)

// moment is what time.Now would say on a machine: what its clock on the wall shows, which
// may be set, and how long it runs, which goes on evenly. Production code never sees one
// without the other, and a moment that has lost the second is compared by the first. The
// time package makes such moments of the real clock alone, so this one is put together
// here, as the package keeps it: TestMomentsHaveTwoClocks holds it to that.
func moment(wall time.Time, runs time.Duration) time.Time {
	const (
		twoClocks  = 1 << 63
		since1885  = 59453308800 // what the seconds of such a moment are counted from, in those since the year 1
		since1970  = 62135596800 // likewise
		nanosecond = 30          // bits
	)
	var t time.Time
	parts := (*struct {
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&t))
	parts.wall = twoClocks | uint64(wall.Unix()+since1970-since1885)<<nanosecond | uint64(wall.Nanosecond())
	parts.ext = int64(runs)
	return t
}

// clock is what the world's time is called by those inside it.
func (w *World) clock() time.Time { return epoch.Add(w.now) }

// clockOf is what a machine's clocks say.
func (w *World) clockOf(p *process) time.Time { return w.clockAt(p, w.now) }

// clockAt is what they said then, or will, if nobody sets them.
func (w *World) clockAt(p *process, at time.Duration) time.Time {
	return moment(epoch.Add(at+p.skew), time.Hour+at)
}

// jumps sets a machine's clock, under everything that runs there.
func (w *World) jumps(f *Fault, p *process) {
	w.reached.hit("clock set under a running process")
	p.skew = time.Duration(2*float64(maxSkew)/float64(jumpsFor)*float64(f.For)) - maxSkew
}

// jumpsFor is what the durations of extra faults are below.
const jumpsFor = 2 * time.Second

// epoch is when worlds begin.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

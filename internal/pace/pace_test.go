package pace

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

const mib = 1 << 20

var bounds = Bounds{Least: 4 * mib, Start: 4 * mib, Most: 64 * mib, Wait: time.Second}

// line is a queue that takes `rate` bytes a second, in its order, in groups,
// and senders that fill it as fast as the pace lets them.
type line struct {
	*Pace
	now   time.Time
	queue []parcel
	busy  int64
}

type parcel struct {
	bytes int64
	since time.Time
}

// run goes on for so long and returns the longest wait and the bytes taken.
func (l *line) run(rate float64, group int64, size func() int64, d time.Duration) (longest time.Duration, taken int64) {
	for end := l.now.Add(d); l.now.Before(end); {
		for n := size(); l.Admits(l.busy, n); n = size() {
			l.queue = append(l.queue, parcel{n, l.now})
			l.busy += n
		}
		var n int64
		k := 0
		for k < len(l.queue) && (k == 0 || n+l.queue[k].bytes <= group) {
			n += l.queue[k].bytes
			k++
		}
		l.now = l.now.Add(time.Duration(float64(n) / rate * float64(time.Second)))
		waited := l.now.Sub(l.queue[0].since)
		l.queue, l.busy = l.queue[k:], l.busy-n
		l.Taken(l.now, n, waited)
		longest, taken = max(longest, waited), taken+n
	}
	return longest, taken
}

func kib64() int64 { return 64 << 10 }

func TestASlowTakerMakesTheQueueShort(t *testing.T) {
	l := &line{Pace: New(bounds), now: time.Unix(0, 0)}
	// A good disk: all of the window is used, and nobody waits for long.
	if longest, taken := l.run(400*mib, 8*mib, kib64, 10*time.Second); longest > bounds.Wait || taken < 3900*mib {
		t.Errorf("at 400 MiB/s: longest wait %s, %d MiB taken", longest, taken/mib)
	}
	if l.Limit() != bounds.Most {
		t.Errorf("limit %d MiB on a good disk", l.Limit()/mib)
	}
	// Its neighbours take it away. What is queued by then waits; after that
	// nothing waits much longer than it should.
	l.run(8*mib, 8*mib, kib64, 10*time.Second)
	longest, taken := l.run(8*mib, 8*mib, kib64, 30*time.Second)
	if longest > 2*bounds.Wait {
		t.Errorf("at 8 MiB/s the longest wait is %s", longest)
	}
	if taken < 230*mib {
		t.Errorf("at 8 MiB/s only %d MiB of 240 were taken", taken/mib)
	}
	// They give it back.
	if _, taken := l.run(400*mib, 8*mib, kib64, 10*time.Second); taken < 3900*mib || l.Limit() != bounds.Most {
		t.Errorf("after that %d MiB were taken, limit %d MiB", taken/mib, l.Limit()/mib)
	}
}

func TestATakerThatWasAlwaysSlowIsNeverFlooded(t *testing.T) {
	l := &line{Pace: New(bounds), now: time.Unix(0, 0)}
	if longest, _ := l.run(5*mib, mib, kib64, time.Minute); longest > 3*bounds.Wait/2 {
		t.Errorf("the longest wait is %s", longest)
	}
}

func TestBigThingsPassAlone(t *testing.T) {
	p := New(bounds)
	if !p.Admits(0, 100*mib) {
		t.Error("nothing is under way, and it has to wait")
	}
	if p.Admits(1, bounds.Least) {
		t.Error("more than the limit is let in")
	}
}

// Only who was held back makes the limit grow: what nobody asks for is not
// there when the taker slows down.
func TestALimitThatHoldsNobodyBackStays(t *testing.T) {
	p := New(bounds)
	for i := range 1000 {
		p.Taken(time.Unix(int64(i), 0), mib, time.Millisecond)
	}
	if p.Limit() != bounds.Least {
		t.Errorf("limit %d", p.Limit())
	}
}

// Whatever the speeds, sizes and changes: the limit stays within its bounds,
// the taker is never idle, and once it had time to adjust waits are short
// unless the least window alone takes longer.
func TestPaceFollowsAnySpeed(t *testing.T) {
	for seed := range uint64(200) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			l := &line{Pace: New(bounds), now: time.Unix(0, 0)}
			size := func() int64 { return 1 + r.Int64N(mib) }
			for range 5 {
				rate := float64(mib) * float64(int(1)<<r.IntN(9))
				group := mib << r.IntN(4)
				// Time to get rid of what is queued, and as much again.
				settle := time.Duration(2*float64(bounds.Most)/rate*float64(time.Second)) + 2*time.Second
				l.run(rate, int64(group), size, settle)
				longest, taken := l.run(rate, int64(group), size, 20*time.Second)
				if lim := l.Limit(); lim < bounds.Least || lim > bounds.Most {
					t.Fatalf("limit %d", lim)
				}
				fair := max(bounds.Wait, time.Duration(float64(bounds.Least)/rate*float64(time.Second)))
				slack := time.Duration(float64(group+2*mib) / rate * float64(time.Second))
				if longest > 2*fair+slack {
					t.Errorf("at %.0f MiB/s the longest wait is %s", rate/mib, longest)
				}
				if float64(taken) < rate*20*0.99 {
					t.Errorf("at %.0f MiB/s only %d MiB were taken in 20 s", rate/mib, taken/mib)
				}
			}
		})
	}
}

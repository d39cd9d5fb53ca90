package seats

import (
	"math/rand/v2"
	"time"
)

// arrivals bounds how many connections a second a node takes in, so that a storm
// of them leaves it time for those that it has.
type arrivals struct {
	each time.Duration // a connection's share of a second; 0: no bound
	due  time.Time     // when the node will have had what it took, at its rate
	line time.Time     // up to when those that were refused are told to come back
}

const (
	// arrivalsBurst is how much of its rate a node that was left alone takes at
	// once.
	arrivalsBurst = time.Second
	// longestLine is as far as the queue of those that were refused is believed:
	// some never come back.
	longestLine = 30 * time.Second
)

func newArrivals(perSecond int) arrivals {
	if perSecond == 0 {
		return arrivals{}
	}
	return arrivals{each: time.Second / time.Duration(perSecond)}
}

// take lets one in, or says when it is to come again: those that are refused come
// one after another then, at the rate, and not all at once.
func (a *arrivals) take(now time.Time) (wait time.Duration) {
	if a.each == 0 {
		return 0
	}
	if a.due.Before(now) {
		a.due = now
	}
	if due := a.due.Add(a.each); due.Sub(now) <= max(arrivalsBurst, a.each) {
		a.due = due
		return 0
	}
	if a.line.Before(now) || a.line.Sub(now) > longestLine {
		a.line = now
	}
	a.line = a.line.Add(a.each)
	// What a client hears are whole seconds: the random part keeps the steps apart.
	return a.line.Sub(now) + rand.N(time.Second)
}

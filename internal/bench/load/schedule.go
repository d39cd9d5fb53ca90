package load

// schedule says when the messages of an open loop are to leave: evenly, from
// begin on. Times are nanoseconds of one clock.
type schedule struct {
	begin    int64
	interval float64 // between two messages
}

func newSchedule(begin int64, perSecond float64) schedule {
	return schedule{begin: begin, interval: 1e9 / perSecond}
}

// when is the time of message n.
func (s schedule) when(n int64) int64 { return s.begin + int64(float64(n)*s.interval) }

// due is how many messages are to have left by now.
func (s schedule) due(now int64) int64 {
	if now < s.begin {
		return 0
	}
	n := int64(float64(now-s.begin) / s.interval)
	for n > 0 && s.when(n-1) > now { // the division rounds, and when rounds in another way
		n--
	}
	for s.when(n) <= now {
		n++
	}
	return n
}

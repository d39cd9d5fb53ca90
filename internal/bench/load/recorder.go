package load

import (
	"sync"
	"sync/atomic"

	"tidewire/internal/bench/figure"
)

// recorder counts what one loop sees. The loop holds mu while it counts what one
// read has brought; the meter holds it while it takes the count away.
type recorder struct {
	mu         sync.Mutex
	messages   int64
	refused    int64
	lost       int64
	duplicates int64
	latency    *figure.Histogram
	late       *figure.Histogram

	moved atomic.Int64 // grows with everything that arrives
}

func newRecorder() *recorder {
	return &recorder{latency: figure.NewHistogram(), late: figure.NewHistogram()}
}

// newRecorders makes one for each loop of a crew.
func newRecorders(c *crew) []*recorder {
	all := make([]*recorder, len(c.loops))
	for i := range all {
		all[i] = newRecorder()
	}
	return all
}

// totals adds recorders up.
type totals struct {
	count         figure.Count
	latency, late *figure.Histogram
}

func newTotals() *totals {
	return &totals{latency: figure.NewHistogram(), late: figure.NewHistogram()}
}

// take moves what was counted into the totals.
func (r *recorder) take(t *totals) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t.count.Messages += r.messages
	t.count.Refused += r.refused
	t.count.Lost += r.lost
	t.count.Duplicates += r.duplicates
	t.latency.Add(r.latency)
	t.late.Add(r.late)
	r.messages, r.refused, r.lost, r.duplicates = 0, 0, 0, 0
	r.latency.Reset()
	r.late.Reset()
}

// read gives the count with its percentiles.
func (t *totals) read() figure.Count {
	c := t.count
	c.Latency, c.Late = t.latency.Latency(), t.late.Latency()
	return c
}

package deliver

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Tally counts what one worker writes to readers. It belongs to that worker and
// tells the metrics once in a while, so that counting costs a delivery nothing
// that is shared with others.
type Tally struct {
	metrics   *Metrics
	delivered prometheus.Counter
	latency   *latency

	messages, bytes int64
	late            [len(latencyBounds) + 1]uint64
	lateSum         int64 // ms
}

// Tally makes one for a transport.
func (m *Metrics) Tally(transport string) *Tally {
	return &Tally{metrics: m, delivered: m.Delivered.WithLabelValues(transport), latency: m.latency[transport]}
}

// Wrote counts a run that was written to a reader at a time.
func (t *Tally) Wrote(r Run, now time.Time) {
	t.messages += int64(r.Len())
	t.bytes += int64(len(r.Lines()))
	if r.live {
		took := max(0, now.UnixMilli()-r.Timestamp())
		t.late[bucketOf(took)]++
		t.lateSum += took
	}
}

// Tell adds what was counted since the last time to the metrics.
func (t *Tally) Tell() {
	if t.messages == 0 {
		return
	}
	t.delivered.Add(float64(t.messages))
	t.metrics.messages.Add(t.messages)
	t.metrics.bytes.Add(t.bytes)
	t.latency.add(&t.late, t.lateSum)
	t.messages, t.bytes, t.late, t.lateSum = 0, 0, [len(latencyBounds) + 1]uint64{}, 0
}

// latencyBounds are those of the histogram's buckets, in ms, which is as fine as
// timestamps are.
var latencyBounds = [...]int64{1, 2, 5, 10, 20, 50, 100, 250, 500, 1000, 2500, 10_000}

func bucketOf(ms int64) int {
	i := 0
	for i < len(latencyBounds) && ms > latencyBounds[i] {
		i++
	}
	return i
}

// latency is a histogram that takes many observations at once, which the
// library's does not.
type latency struct {
	desc   *prometheus.Desc
	counts [len(latencyBounds) + 1]atomic.Uint64
	sum    atomic.Int64 // ms
}

func newLatency(transport string) *latency {
	return &latency{desc: prometheus.NewDesc("gateway_deliver_latency_seconds",
		"From a leader taking a record in to its being written to a reader that keeps pace.", nil, prometheus.Labels{"transport": transport})}
}

func (l *latency) add(counts *[len(latencyBounds) + 1]uint64, sum int64) {
	for i, n := range counts {
		if n > 0 {
			l.counts[i].Add(n)
		}
	}
	l.sum.Add(sum)
}

// Describe is for the registry.
func (l *latency) Describe(ch chan<- *prometheus.Desc) { ch <- l.desc }

// Collect is for the registry.
func (l *latency) Collect(ch chan<- prometheus.Metric) {
	buckets, total := make(map[float64]uint64, len(latencyBounds)), uint64(0)
	for i := range l.counts {
		total += l.counts[i].Load()
		if i < len(latencyBounds) {
			buckets[float64(latencyBounds[i])/1000] = total
		}
	}
	ch <- prometheus.MustNewConstHistogram(l.desc, total, float64(l.sum.Load())/1000, buckets)
}

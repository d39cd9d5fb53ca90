package figure

import (
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Latency is a distribution, in microseconds.
type Latency struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// longest is what a histogram can hold; more counts as this.
const longest = 2 * time.Minute

// Histogram counts durations with three digits of precision. One goroutine at a
// time uses it.
type Histogram struct{ h *hdrhistogram.Histogram }

// NewHistogram makes an empty one.
func NewHistogram() *Histogram {
	return &Histogram{hdrhistogram.New(1, int64(longest), 3)}
}

// Record counts nanoseconds.
func (h *Histogram) Record(ns int64) {
	_ = h.h.RecordValue(min(max(ns, 1), int64(longest))) // in range, so it cannot fail
}

// Add counts all that another has counted.
func (h *Histogram) Add(other *Histogram) { h.h.Merge(other.h) }

// Reset makes it empty.
func (h *Histogram) Reset() { h.h.Reset() }

// Latency reads the percentiles; nil where nothing was counted.
func (h *Histogram) Latency() *Latency {
	if h.h.TotalCount() == 0 {
		return nil
	}
	at := func(percent float64) float64 { return micros(h.h.ValueAtPercentile(percent)) }
	return &Latency{at(50), at(90), at(99), at(99.9), micros(h.h.Max())}
}

func micros(ns int64) float64 { return round(float64(ns)/1e3, 1) }

// round keeps so many digits after the point: the rest is noise.
func round(v float64, digits int) float64 {
	p := math.Pow10(digits)
	return math.Round(v*p) / p
}

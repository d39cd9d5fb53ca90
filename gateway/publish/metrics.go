package publish

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidewire/internal/fault"
)

// metrics of a Publisher.
type metrics struct {
	results   *prometheus.CounterVec
	good      prometheus.Counter // of results, those kept
	again     prometheus.Counter // and the duplicates
	latency   prometheus.Histogram
	batch     prometheus.Histogram
	inFlight  prometheus.Gauge
	kept      atomic.Int64 // records
	keptBytes atomic.Int64
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gateway_publish_records_total",
			Help: "Records that clients published, by what became of them: kept, duplicate, or the code of the refusal.",
		}, []string{"result"}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "gateway_publish_latency_seconds",
			Help:    "Time from taking a record in until its answer, as the oldest record of each batch saw it.",
			Buckets: prometheus.ExponentialBuckets(100e-6, 2, 16),
		}),
		batch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "gateway_publish_batch_records",
			Help:    "Records in a batch that was sent to a leader.",
			Buckets: prometheus.ExponentialBuckets(1, 4, 8),
		}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "gateway_publish_in_flight_bytes",
			Help: "Bytes of records that are under way on this node.",
		}),
	}
	m.good, m.again = m.results.WithLabelValues("kept"), m.results.WithLabelValues("duplicate")
	if r != nil {
		r.MustRegister(m.results, m.latency, m.batch, m.inFlight)
	}
	return m
}

// result counts one record.
func (m *metrics) result(r Result, bytes int64) {
	switch {
	case r.Err != nil:
		m.results.WithLabelValues(fault.KindOf(r.Err).Code()).Inc()
	case r.Duplicate:
		m.again.Inc()
	default:
		m.good.Inc()
		m.kept.Add(1)
		m.keptBytes.Add(bytes)
	}
}

// sent observes a batch that was answered.
func (m *metrics) sent(b *batch) {
	m.batch.Observe(float64(len(b.waiters)))
	m.latency.Observe(time.Since(b.begun).Seconds())
}

// Kept counts the records, and their bytes, that were kept since the start.
func (p *Publisher) Kept() (records, bytes int64) {
	return p.metrics.kept.Load(), p.metrics.keptBytes.Load()
}

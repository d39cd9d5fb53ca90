package deliver

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Transports, as metrics name them.
const (
	WebSocket = "websocket"
	SSE       = "sse"
)

// Metrics of delivery, over all transports.
type Metrics struct {
	Connections *prometheus.GaugeVec   // transport
	Refused     *prometheus.CounterVec // reason
	Delivered   *prometheus.CounterVec // transport
	Slow        prometheus.Counter     //

	latency map[string]*latency // by transport

	feeds    prometheus.Gauge
	encoded  prometheus.Counter
	logReads prometheus.Counter
	gaps     *prometheus.CounterVec

	messages, bytes atomic.Int64 // over all transports, for the node's rates
}

// NewMetrics declares the metrics; a nil registerer keeps them to itself.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	auto := promauto.With(reg)
	gauge := func(name, help string) prometheus.Gauge {
		return auto.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return auto.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		Connections: auto.NewGaugeVec(prometheus.GaugeOpts{Name: "gateway_connections", Help: "Connections that are open now."}, []string{"transport"}),
		Refused:     counters("gateway_connections_refused_total", "Connections refused by a limit of the node or of an address.", "reason"),
		Delivered:   counters("gateway_messages_delivered_total", "Messages written to readers.", "transport"),
		Slow:        counter("gateway_slow_consumers_total", "Connections ended because they took no byte for slow_consumer_timeout."),
		latency:     map[string]*latency{WebSocket: newLatency(WebSocket), SSE: newLatency(SSE)},
		feeds:       gauge("gateway_feeds", "Partitions followed for subscriptions."),
		encoded:     counter("gateway_encoded_messages_total", "Messages encoded by feeds, once for all their readers."),
		logReads:    counter("gateway_log_reads_total", "Pieces of the log read for subscriptions behind their feed's ring."),
		gaps:        gapCounters(counters("gateway_gaps_total", "Gaps that subscriptions and streams were told of.", "reason")),
	}
	if reg != nil {
		for _, l := range m.latency {
			reg.MustRegister(l)
		}
	}
	return m
}

// gapCounters are there from the start, so that a rate over them is right.
func gapCounters(c *prometheus.CounterVec) *prometheus.CounterVec {
	for _, reason := range []string{ReasonExpired, ReasonTruncated, ReasonOtherTopic, ReasonUnknown} {
		c.WithLabelValues(reason)
	}
	return c
}

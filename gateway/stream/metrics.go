package stream

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	waiting prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) metrics {
	auto := promauto.With(reg)
	return metrics{
		waiting: auto.NewCounter(prometheus.CounterOpts{Name: "gateway_sse_waiting_writes_total", Help: "Writes to streams of events that a socket did not take at once, so that a goroutine had to wait for it."}),
	}
}

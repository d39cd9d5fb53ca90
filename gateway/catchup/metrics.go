package catchup

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics of a CatchUp.
type metrics struct{ reached, failed prometheus.Counter }

func newMetrics(r prometheus.Registerer) metrics {
	all := promauto.With(r).NewCounterVec(prometheus.CounterOpts{
		Name: "gateway_catchups_total",
		Help: "Times this node made sure that it has heard of what was decided, before it said that something is not there, by outcome: reached or failed.",
	}, []string{"outcome"})
	return metrics{all.WithLabelValues("reached"), all.WithLabelValues("failed")}
}

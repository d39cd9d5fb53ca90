package metric_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"tidewire/internal/testkit/metric"
)

func TestSumIsOverTheLabels(t *testing.T) {
	reg := prometheus.NewRegistry()
	counts := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "clients_total"}, []string{"code"})
	level := prometheus.NewGauge(prometheus.GaugeOpts{Name: "level"})
	reg.MustRegister(counts, level)
	counts.WithLabelValues("a").Add(2)
	counts.WithLabelValues("b").Add(3)
	level.Set(-7)
	for name, want := range map[string]float64{"clients_total": 5, "level": -7, "nothing": 0} {
		if got := metric.Sum(t, reg, name); got != want {
			t.Errorf("%s is %v, not %v", name, got, want)
		}
	}
}

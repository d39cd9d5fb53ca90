package groups

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"tidewire/gateway/group"
	"tidewire/internal/fault"
	"tidewire/internal/wire"
)

// metrics of Groups.
type metrics struct {
	messages   prometheus.Counter
	unreadable prometheus.Counter
	settled    *prometheus.CounterVec // result
	waits      prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) metrics {
	auto := promauto.With(reg)
	return metrics{
		messages:   auto.NewCounter(prometheus.CounterOpts{Name: "gateway_group_messages_total", Help: "Messages that were leased to members here and went on to them."}),
		unreadable: auto.NewCounter(prometheus.CounterOpts{Name: "gateway_group_unreadable_total", Help: "Leases of messages that came in batches that cannot be read, and that were given back."}),
		settled: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "gateway_group_settled_total",
			Help: "Entries by which members here settled records, by what became of them: taken, stale, or the code of the error of their call.",
		}, []string{"result"}),
		waits: auto.NewGauge(prometheus.GaugeOpts{Name: "gateway_group_waits", Help: "Waits for members' records at leaders that are under way."}),
	}
}

// count notes what became of the entries of one call. Records that one of them covers, and
// that were not taken, are none.
func (m *metrics) count(entries []wire.Entry, stale []group.Stale, err error) {
	if err != nil {
		m.settled.WithLabelValues(fault.KindOf(err).Code()).Add(float64(len(entries)))
		return
	}
	refused := group.Refused(entries, stale)
	m.settled.WithLabelValues("taken").Add(float64(len(entries) - refused))
	m.settled.WithLabelValues("stale").Add(float64(refused))
}

package host

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics of a host. What replicas know is asked when somebody looks.
type metrics struct {
	host *Host

	changes  prometheus.Counter
	repairs  prometheus.Counter
	led      *prometheus.Desc
	followed *prometheus.Desc
	under    *prometheus.Desc
	lag      *prometheus.Desc
}

func newMetrics(h *Host) *metrics {
	return &metrics{
		host: h,
		changes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "broker_isr_changes_total", Help: "Changes of in-sync replicas that this node's leaders asked for and got.",
		}),
		repairs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "broker_repaired_replicas_total", Help: "Damaged replicas that were set aside and fetched anew.",
		}),
		led:      prometheus.NewDesc("broker_partitions_led", "Partitions that this node leads.", nil, nil),
		followed: prometheus.NewDesc("broker_partitions_followed", "Partitions that this node follows.", nil, nil),
		under:    prometheus.NewDesc("broker_under_replicated_partitions", "Partitions led here that have replicas outside the ISR.", nil, nil),
		lag:      prometheus.NewDesc("broker_replica_lag_records", "Records that the replica furthest behind a leader of this node has yet to put on its disk.", nil, nil),
	}
}

// Describe is of prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, to) }

// Collect is of prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	var led, followed, under, lag float64
	for _, r := range m.host.Replicas() {
		l := r.Load()
		if !l.Leads {
			followed++
			continue
		}
		led++
		if l.Missing > 0 {
			under++
		}
		lag = max(lag, float64(l.Lag))
	}
	gauge := func(d *prometheus.Desc, v float64) { to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	gauge(m.led, led)
	gauge(m.followed, followed)
	gauge(m.under, under)
	gauge(m.lag, lag)
	m.changes.Collect(to)
	m.repairs.Collect(to)
}

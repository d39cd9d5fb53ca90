package coordinator

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidewire/internal/fault"
)

// metrics is the table of everything the coordinator counts.
type metrics struct {
	apply    *prometheus.HistogramVec
	commands *prometheus.CounterVec
	led      prometheus.Counter
	lapses   prometheus.Counter
	gauges   []prometheus.Collector
}

func newMetrics(c *Coordinator) *metrics {
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	m := &metrics{
		apply: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "coordinator_apply_seconds",
			Help:    "Time from a change's request to its answer, by kind of command.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16),
		}, []string{"command"}),
		commands: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coordinator_commands_total",
			Help: "Changes asked for, by kind of command and the code of the answer (ok where it was made).",
		}, []string{"command", "code"}),
	}
	m.led = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "coordinator_leaderships_total",
		Help: "How often this node came to lead the coordinators: over all nodes, how often the leader changed.",
	})
	m.lapses = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "coordinator_sessions_ended_total",
		Help: "Sessions of group members that this node, leading, saw end because nothing was heard of them.",
	})
	m.gauges = []prometheus.Collector{
		m.led, m.lapses,
		gauge("coordinator_members", "Members of groups whose sessions this coordinator watches; 0 where it does not lead.", func() float64 {
			if r := c.rules.Load(); r != nil {
				return float64(r.members.Load())
			}
			return 0
		}),
		gauge("coordinator_groups", "Consumer groups of all topics.", func() float64 {
			n := 0
			for _, t := range c.feed.Snapshot().Groups {
				n += t.Len()
			}
			return float64(n)
		}),
		gauge("coordinator_voters", "Coordinators that have a vote, as this one knows.", func() float64 { return float64(len(c.Status().Voters)) }),
		gauge("coordinator_suspects", "Nodes whose lives this coordinator doubts; 0 where it does not lead.", func() float64 { return float64(len(c.Status().Suspects)) }),
		gauge("coordinator_raft_index", "Raft index of the published state.", func() float64 { return float64(c.feed.Snapshot().Index) }),
		gauge("coordinator_raft_log_index", "Last index of the Raft log.", func() float64 { return float64(c.node.Status().Last) }),
		gauge("coordinator_raft_term", "Raft term.", func() float64 { return float64(c.node.Status().Term) }),
		gauge("coordinator_leader", "1 while this node leads the coordinators.", func() float64 {
			if c.node.Status().Leads {
				return 1
			}
			return 0
		}),
		gauge("coordinator_topics", "Topics of the cluster.", func() float64 { return float64(len(c.feed.Snapshot().Topics)) }),
		gauge("coordinator_partitions", "Partitions of all topics.", func() float64 {
			n := 0
			for _, t := range c.feed.Snapshot().Topics {
				n += len(t.Partitions)
			}
			return float64(n)
		}),
		gauge("coordinator_nodes", "Nodes of the cluster.", func() float64 { return float64(len(c.feed.Snapshot().Nodes)) }),
	}
	return m
}

func (m *metrics) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	var errs []error
	for _, c := range append(m.gauges, m.apply, m.commands) {
		errs = append(errs, r.Register(c))
	}
	return errors.Join(errs...)
}

func (m *metrics) done(command string, err error, took time.Duration) {
	code := "ok"
	if err != nil {
		code = fault.KindOf(err).Code()
	}
	m.apply.WithLabelValues(command).Observe(took.Seconds())
	m.commands.WithLabelValues(command, code).Inc()
}

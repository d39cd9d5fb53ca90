package groups

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidewire/internal/cluster"
	"tidewire/internal/rpc"
)

// metrics of groups. What machines know is asked when somebody looks.
type metrics struct {
	g *Groups

	commits   prometheus.Counter
	acks      prometheus.Counter
	refused   prometheus.Counter
	seconds   prometheus.Histogram
	leases    prometheus.Counter
	again     prometheus.Counter
	dead      prometheus.Counter
	undead    prometheus.Counter
	loads     prometheus.Counter
	units     *prometheus.Desc
	inFlight  *prometheus.Desc
	paused    *prometheus.Desc
	timeouts  prometheus.Counter
	unwritten *prometheus.Desc
}

func newMetrics(g *Groups) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return &metrics{
		g:       g,
		commits: counter("broker_group_commits_total", "Commits of what consumers did, each of all groups on this node that had something to say."),
		acks:    counter("broker_group_acks_total", "Records that consumers acknowledged and the coordinator holds as done."),
		refused: counter("broker_group_commit_parts_refused_total", "Parts of commits that did not count: the member, the owner, the leader or the group was another by then."),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "broker_group_commit_seconds", Help: "How long the coordinator took to hold a commit.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}),
		leases:   counter("broker_group_leases_total", "Records leased to members of groups."),
		again:    counter("broker_group_redeliveries_total", "Records leased again, which failed before."),
		timeouts: counter("broker_group_timeouts_total", "Leases of records that ran out."),
		dead:     counter("broker_group_dead_letters_total", "Records appended to dead-letter topics."),
		undead:   counter("broker_group_dead_letter_failures_total", "Tries to append a record to a dead-letter topic that did not succeed; each is repeated."),
		loads:    counter("broker_group_progress_loads_total", "Reads of the progress of groups at the coordinator."),

		units:     prometheus.NewDesc("broker_group_partitions", "Groups at work on partitions led here, counted once a partition.", nil, nil),
		inFlight:  prometheus.NewDesc("broker_group_in_flight_records", "Records leased to members of groups at the moment.", nil, nil),
		paused:    prometheus.NewDesc("broker_group_paused_partitions", "Groups on partitions led here that are given nothing new, because too many of their records are not done.", nil, nil),
		unwritten: prometheus.NewDesc("broker_group_dead_letters_waiting", "Records on their way to dead-letter topics.", nil, nil),
	}
}

// committed counts a commit that was answered.
func (m *metrics) committed(took time.Duration, parts []cluster.CommitOf, taken []bool) {
	m.commits.Inc()
	m.seconds.Observe(took.Seconds())
	for i := range parts {
		if i >= len(taken) || !taken[i] {
			m.refused.Inc()
			continue
		}
		if parts[i].Assignment == 0 && parts[i].Member == "" {
			continue // holes of the log are done as well
		}
		for _, s := range parts[i].Done {
			m.acks.Add(float64(s.To - s.From))
		}
	}
}

// given counts leases.
func (m *metrics) given(leases []rpc.Lease) {
	m.leases.Add(float64(len(leases)))
	for _, l := range leases {
		if l.Delivery > 1 {
			m.again.Inc()
		}
	}
}

// Describe is of prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, to) }

// Collect is of prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	var units, inFlight, paused float64
	m.g.mu.Lock()
	posts := make([]*post, 0, len(m.g.posts))
	for _, p := range m.g.posts {
		posts = append(posts, p)
	}
	m.g.mu.Unlock()
	for _, p := range posts {
		for _, u := range p.atWork() {
			u.mu.Lock()
			if u.m != nil {
				units++
				inFlight += float64(u.m.InFlight())
				if u.m.Paused() {
					paused++
				}
			}
			u.mu.Unlock()
		}
	}
	gauge := func(d *prometheus.Desc, v float64) { to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	gauge(m.units, units)
	gauge(m.inFlight, inFlight)
	gauge(m.paused, paused)
	gauge(m.unwritten, float64(m.g.letters.waiting()))
	for _, c := range []prometheus.Collector{m.commits, m.acks, m.refused, m.seconds, m.leases, m.again, m.timeouts, m.dead, m.undead, m.loads} {
		c.Collect(to)
	}
}

// atWork are the units of the moment.
func (p *post) atWork() []*unit {
	p.mu.Lock()
	defer p.mu.Unlock()
	units := make([]*unit, 0, len(p.units))
	for _, u := range p.units {
		units = append(units, u)
	}
	return units
}

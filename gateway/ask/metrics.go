package ask

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"tidewire/internal/fault"
	"tidewire/internal/inbox"
)

type metrics struct {
	requests *prometheus.CounterVec // result
	replies  *prometheus.CounterVec // result
	well     prometheus.Counter
	badly    prometheus.Counter
	gone     prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, a *Ask) metrics {
	auto := promauto.With(reg)
	m := metrics{
		requests: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "gateway_requests_total",
			Help: "Requests of clients that have ended here, by how: reply, failure (the responder's), left (the client did), or the code of their error.",
		}, []string{"result"}),
		replies: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "gateway_replies_total",
			Help: "Replies of responders that came here, by the way that they took: local, forwarded to another gateway, kept at a leader, or the code of their error.",
		}, []string{"result"}),
	}
	m.well, m.badly, m.gone = m.requests.WithLabelValues("reply"), m.requests.WithLabelValues("failure"), m.requests.WithLabelValues("left")
	for _, way := range []string{local, forwarded, kept} {
		m.replies.WithLabelValues(way)
	}
	gauge := func(name, help string, value func(*inbox.Box) float64) {
		auto.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			a.mu.Lock()
			defer a.mu.Unlock()
			return value(a.box)
		})
	}
	gauge("gateway_requests_pending", "Clients that wait for a reply here.", func(b *inbox.Box) float64 { return float64(b.Callers()) })
	gauge("gateway_inboxes", "Inboxes of this gateway that are open: requests that wait, and those that are kept for a repeat.", func(b *inbox.Box) float64 { return float64(b.Entries()) })
	gauge("gateway_kept_replies_bytes", "Replies that are kept here for a repeat of their request.", func(b *inbox.Box) float64 { return float64(b.Bytes()) })
	return m
}

func (m *metrics) ended(err error) { m.requests.WithLabelValues(fault.KindOf(err).Code()).Inc() }

func (m *metrics) replied(r *inbox.Reply) {
	if r.Status != 0 {
		m.badly.Inc()
	} else {
		m.well.Inc()
	}
}

func (m *metrics) left() { m.gone.Inc() }

// returned counts a reply that came to nobody.
func (m *metrics) returned(err error) {
	m.replies.WithLabelValues(fault.KindOf(err).Code()).Inc()
}

package httpapi

import (
	"net/http"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"tidewire/gateway/budget"
)

// metrics of the API. Routes are patterns, so no label holds what a client sent.
type metrics struct {
	requests                *prometheus.CounterVec
	known                   sync.Map // of requests: outcome -> prometheus.Counter
	linesKept, linesRefused prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, held *budget.Budget) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gateway_http_requests_total",
			Help: "HTTP requests answered, by route, method and status.",
		}, []string{"route", "method", "status"}),
	}
	lines := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gateway_http_ndjson_lines_total",
		Help: "Lines of ndjson bodies, by whether their record was kept.",
	}, []string{"kept"})
	m.linesKept, m.linesRefused = lines.WithLabelValues("true"), lines.WithLabelValues("false")
	if reg != nil {
		reg.MustRegister(m.requests, lines, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "gateway_http_held_bytes",
			Help: "Bytes held of answers that clients have not taken and of bodies that have not arrived whole.",
		}, func() float64 { return float64(held.Held()) }))
	}
	return m
}

// outcome is what requests are counted by.
type outcome struct {
	route, method string
	status        int
}

func (m *metrics) count(r *http.Request, status int) {
	method := r.Method
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPatch, http.MethodDelete, http.MethodOptions:
	default:
		method = "other"
	}
	o := outcome{routePattern(r), method, status}
	if c, ok := m.known.Load(o); ok {
		c.(prometheus.Counter).Inc()
		return
	}
	answered := strconv.Itoa(status)
	if status == 0 {
		answered = "none" // the client had gone
	}
	c := m.requests.WithLabelValues(o.route, o.method, answered)
	m.known.Store(o, c)
	c.Inc()
}

package httpapi

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"tidewire/gateway/budget"
)

// metrics of the API. Routes are patterns, so no label holds what a client sent.
type metrics struct {
	requests                *prometheus.CounterVec
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

func (m *metrics) count(r *http.Request, status int) {
	method := r.Method
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPatch, http.MethodDelete, http.MethodOptions:
	default:
		method = "other"
	}
	answered := strconv.Itoa(status)
	if status == 0 {
		answered = "none" // the client had gone
	}
	m.requests.WithLabelValues(routePattern(r), method, answered).Inc()
}

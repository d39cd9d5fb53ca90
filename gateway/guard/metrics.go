package guard

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"tidewire/gateway/access"
)

// HTTP is the transport of plain calls, as metrics name it; package deliver names
// the others.
const HTTP = "http"

// transports are all of them.
var transports = [...]string{HTTP, "websocket", "sse"}

// Reasons of a refusal that are neither a word of gateway/access nor a right.
const (
	foreignOrigin = "origin" // a page of an origin that is not allowed
	otherReason   = "other"  // none that is named here
)

// limits are what is refused at a limit, by its name, and over what.
var limits = [...]struct {
	name string
	over []string
}{
	{"max_publish_rate", []string{HTTP, "websocket"}},
	{"max_subscriptions", []string{"websocket"}},
	{"tickets", []string{HTTP}},
	{"max_connection_rate", []string{"websocket", "sse"}},
	{"max_connections", []string{"websocket", "sse"}},
	{"max_connections_per_ip", []string{"websocket", "sse"}},
}

// newCounters makes the counters of refusals. What they count is there from the
// start, so that a rate over them sees the first one. asked: callers are asked who
// they are, and can be refused for it.
func newCounters(reg prometheus.Registerer, asked bool) (refused, limited *prometheus.CounterVec) {
	auto := promauto.With(reg)
	refused = auto.NewCounterVec(prometheus.CounterOpts{
		Name: "gateway_access_refused_total",
		Help: "Calls refused for who made them: by a reason such as expired, by the right that is missing, by origin, or other.",
	}, []string{"transport", "reason"})
	limited = auto.NewCounterVec(prometheus.CounterOpts{
		Name: "gateway_limits_refused_total",
		Help: "Calls and connections refused at a limit, by its name.",
	}, []string{"transport", "limit"})
	reasons := []string{foreignOrigin, otherReason}
	if asked {
		for _, r := range access.Reasons() {
			reasons = append(reasons, string(r))
		}
		reasons = append(reasons, access.RightNames()...)
	}
	for _, transport := range transports {
		for _, reason := range reasons {
			refused.WithLabelValues(transport, reason)
		}
	}
	for _, l := range limits {
		for _, transport := range l.over {
			limited.WithLabelValues(transport, l.name)
		}
	}
	return refused, limited
}

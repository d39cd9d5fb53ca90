package httpapi

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"tidewire/internal/fault"
)

// healthz says that the process lives.
func (a *API) healthz(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	return sendJSON(w, http.StatusOK, []byte(`{"status":"alive"}`))
}

// readyz says whether the node can serve, and if not, all the reasons.
func (a *API) readyz(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	var reasons []error
	if a.cfg.NotReady != nil {
		reasons = a.cfg.NotReady()
	}
	if len(reasons) == 0 {
		return sendJSON(w, http.StatusOK, []byte(`{"status":"ready"}`))
	}
	texts := make([]string, len(reasons))
	for i, reason := range reasons {
		texts[i] = fault.As(reason).Detail()
	}
	first := fault.As(reasons[0])
	if first.Kind.Status() != http.StatusServiceUnavailable {
		first = fault.New(fault.LeaderUnavailable, "the node is not ready: %s", texts[0])
	}
	return first.With("reasons", texts)
}

// metricsPage is GET /metrics, OpenMetrics where it is asked for.
func (a *API) metricsPage() http.Handler {
	return promhttp.HandlerFor(a.cfg.Gatherer, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

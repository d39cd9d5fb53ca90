package httpapi

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"tidewire/internal/fault"
	"tidewire/internal/wire"
)

// healthz says that the process lives.
func (a *API) healthz(w http.ResponseWriter, r *http.Request) error { return sendAlive(w, r) }

func sendAlive(w http.ResponseWriter, r *http.Request) error {
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
		l := wire.Begin(nil).Str("status", "ready")
		if a.cfg.Warnings != nil {
			if texts := a.cfg.Warnings(); len(texts) > 0 {
				list := []byte{'['}
				for i, text := range texts {
					if i > 0 {
						list = append(list, ',')
					}
					list = wire.AppendString(list, text)
				}
				l.Raw("warnings", append(list, ']'))
			}
		}
		return sendJSON(w, http.StatusOK, l.Close())
	}
	return notReady(reasons)
}

// notReady is the problem of a node that cannot serve, with all the reasons.
func notReady(reasons []error) error {
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

// metricsPage is GET /metrics: OpenMetrics, but for a client that asks for
// another text.
func (a *API) metricsPage() action {
	page := promhttp.HandlerFor(a.cfg.Gatherer, promhttp.HandlerOpts{EnableOpenMetrics: true})
	return func(w http.ResponseWriter, r *http.Request) error {
		share := a.cfg.Held.Share()
		defer share.Close()
		if err := share.Need(r.Context(), metricsBytes, heldPatience); err != nil {
			return err
		}
		// promhttp takes silence for the older format, and */* too.
		if accept := r.Header.Get("Accept"); accept == "" || accept == "*/*" {
			r.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
		}
		page.ServeHTTP(w, r)
		return nil
	}
}

// metricsBytes is about what the figures hold that a page of metrics is written
// from.
const metricsBytes = 256 << 10

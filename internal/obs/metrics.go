package obs

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// NewRegistry makes the node's registry, which holds the process's own figures
// and those of the Go runtime already.
func NewRegistry(b Build, d Descriptors) *prometheus.Registry {
	r := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "node_build_info",
		Help: "Always 1; the labels say which build the node runs.",
		ConstLabels: prometheus.Labels{
			"version": b.Version, "revision": b.Revision, "go": b.Go, "platform": b.Platform,
		},
	})
	info.Set(1)
	connections := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "node_connection_ceiling",
		Help: "Client connections the process has open files for.",
	})
	connections.Set(float64(d.Connections))
	r.MustRegister(info, connections,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

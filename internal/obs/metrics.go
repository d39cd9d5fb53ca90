package obs

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// NewRegistry makes the node's registry, which holds the process's own figures
// and those of the Go runtime already. most is the bound of its connections, as
// Descriptors.MaxConnections gives it.
func NewRegistry(b Build, most int) *prometheus.Registry {
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
		Help: "Connections the node will take: max_connections, or as many as it has open files for.",
	})
	connections.Set(float64(most))
	r.MustRegister(info, connections,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

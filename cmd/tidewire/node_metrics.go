package main

import "github.com/prometheus/client_golang/prometheus"

// watchFeed tells how fresh what this node knows of the cluster is.
func (n *node) watchFeed() {
	n.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "node_feed_age_seconds",
		Help: "How long ago this node heard a coordinator that hears the one that leads.",
	}, func() float64 { return n.director.Age().Seconds() }))
}

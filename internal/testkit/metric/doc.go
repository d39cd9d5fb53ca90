// Package metric reads in a test what a registry would tell Prometheus.
package metric

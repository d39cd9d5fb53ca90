// Package figure is what a load has shown: rates, latencies by percentile, and
// what server and load generator used per message. It measures nothing itself
// and prints nothing.
package figure

// Package gateway is the edge of a node: HTTP, server-sent events and
// WebSockets on one listener. It holds nothing durable. Records go in through
// publish to the leaders of their partitions and come out through deliver,
// which follows the partitions that somebody reads.
//
// A node that starts has no gateway yet, for a gateway needs a cluster. Until then a
// Starting answers on the same listener.
package gateway

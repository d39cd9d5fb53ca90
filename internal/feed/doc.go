// Package feed keeps the latest snapshot of the cluster that a node has, and a way
// to wait for a newer one, whatever it comes from: the coordinator's own machine, or
// a stream from another node's.
//
// The latest wins. There is no queue: a reader that was slow finds the newest
// snapshot and has missed nothing, because a snapshot is the whole state. The
// index never falls, whatever is published.
package feed

// Package watch is the coordinator's change feed: the latest snapshot of the
// cluster, and a way to wait for a newer one.
//
// The latest wins. There is no queue: a reader that was slow finds the newest
// snapshot and has missed nothing, because a snapshot is the whole state. The
// index never falls, whatever is published.
package watch

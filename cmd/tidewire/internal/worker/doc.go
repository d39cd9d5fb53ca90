// Package worker is a member of a consumer group as the command line is one: over plain
// HTTP, through one server.
//
// The life of a message: it is taken with a lease, worked on while the lease is extended,
// and settled: acknowledged where the work succeeded, given back where it did not. A lost
// server is waited for; a member that was fenced joins again, and what it had in hand
// comes again to whoever owns it now.
//
// It promises no more than the group does: each message at least once, and, in a group of
// mode exclusive, the first deliveries of a key in order. With Parallel above 1 messages of
// one key are still worked on one after the other.
package worker

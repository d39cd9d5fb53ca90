// Package coordinator is the role that decides: topics and their settings,
// layouts, who holds and who leads each partition, which nodes there are. It hands
// out every change as a snapshot of the whole.
//
// The life of a change: a call becomes a command with a request id and the
// time; consensus commits it under Raft; the pure machine in state applies it and
// answers; watch publishes the new snapshot before the call returns. So whoever
// waits for a change finds it in the feed. A call whose fate raft leaves open is
// repeated with the same request id until it is known or the time is over.
//
// A node that is the only coordinator leads within milliseconds of Open.
package coordinator

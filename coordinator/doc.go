// Package coordinator is the role that decides: topics and their settings,
// layouts, who holds and who leads each partition, which nodes there are and whose
// life is over. It hands out every change as a snapshot of the whole.
//
// Coordinators are several nodes, of which one leads. Each has the whole state and
// answers from it; changes, leases and suspicions are the leader's, and one that does not
// lead refuses them and names it, or brings there what its own node asks for.
//
// The life of a change: a call becomes a command with a request id and the
// time; consensus commits it under Raft on most of the coordinators; the pure machine in
// state applies it and answers; the new snapshot is in the feed before the call returns,
// and watch streams what changed to the nodes that follow this coordinator. So whoever
// waits for a change finds it in the feed. Commits alone, of what groups have done, are in
// no snapshot: who leads a partition asks for that (groups.go). A call whose fate raft leaves open is
// repeated with the same request id until it is known or the time is over.
//
// The leader rules (rule.go): it grants leases to lives that renew them, has liveness
// judge those that fall silent, and session likewise the members of groups, has balance plan
// who leads and holds what, and takes coordinators in and out (join.go, tidy.go). A rule ends with its term, and the next one
// begins from the state alone: nothing that a leader remembers by itself decides.
//
// A node that coordinates alone leads within milliseconds of Open.
package coordinator

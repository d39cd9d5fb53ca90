// Package replication decides, for one partition, what its leader and its followers
// may do: how far the log is committed, who is in sync, whose word counts, where two
// logs part. It is pure: what was heard, what is on disk and the time come in, verdicts
// go out. Package replica runs it against a log and the other brokers.
//
// # What keeps acknowledged records
//
// The set that a leader waits for contains, at every moment, the set that the
// coordinator may elect from. So while a change of the ISR is proposed, and until its
// outcome is known, the leader waits for the members of both and counts only the
// committed ones.
//
// A leader believes a follower only once both have agreed in this leader epoch: the
// follower says how its log ends (a Standing), the leader answers with its epoch history
// until the follower has cut what is not the leader's. From then on what the follower
// says to hold is a prefix of the leader's log.
//
// A follower believes one leader an epoch, and never one of an epoch below the highest
// that it has learned. So a leader that was replaced, and does not know it yet, can
// complete nothing: its successor is one of those that it waits for.
//
// Places are positions (record.Position) and not offsets, because batches of voids
// take no offset and are replicated like all others.
package replication

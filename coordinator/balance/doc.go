// Package balance plans at the leading coordinator what changes next by itself: who
// leads instead of a node that drains, who takes over from a leader that reaches nobody,
// where the replicas of a node go that is gone for good, what a new node gets. It is
// pure: it looks at a snapshot and the time, remembers since when something is so, and
// gives changes to propose.
//
// The life of a plan: every 200 ms the coordinator asks for one and proposes what it
// says. Each change names the version of the partition that it rests on, so one that
// comes too late does nothing. The planner does not ask twice for the same version within
// a while, and never has more than a few moves of data under way.
//
// What is done at once: leaders leave a node that drains, and one whose disk is full where
// another in sync has room, and a partition without a leader gets one that may lead. What waits, so that nothing flaps: a takeover by an
// electable follower waits for one and a half times the lag that a follower is allowed, and
// longer each time (rule C3); a node that was full has room once it has not said so for half a
// minute; a first choice leads again once its partition has been well for a
// while; a dead node's replicas stay its own for ReplaceAfter, because most nodes come
// back, unless another node has come in its place.
//
// It promises nothing about safety: whatever it asks for, the state machine takes only
// what its rules allow. Its memory begins anew with each leading coordinator.
package balance

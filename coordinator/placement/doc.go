// Package placement chooses which nodes hold the replicas of a partition and
// which of them is to lead: for new partitions, for more replicas, and, as nodes come
// and go, by moving few replicas at a time. It is pure and deterministic: the same loads
// give the same answer, whatever order they come in, because every coordinator must
// come to the same one.
//
// What counts, in this order: the replicas of a partition lie in as many zones as they
// can; nodes hold equally many replicas; nodes are first choice to lead equally many
// partitions. Nodes that are dead or drain are not offered by the caller, so they get
// nothing.
//
// It does not weigh partitions by their traffic, and does not know who is in sync: that a
// move begins does not make anything less durable, because the replica that goes stays
// until the one that comes is in sync.
package placement

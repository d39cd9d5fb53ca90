// Package placement chooses which nodes hold the replicas of a partition and
// which of them leads. It is pure and deterministic: the same loads give the
// same answer, whatever order they come in, because every coordinator must
// come to the same one.
package placement

// Package host keeps the partitions of this node as the coordinator wants them:
// it opens the logs of what the node should hold, tells each replica its orders (lead,
// follow, whom), lets go of what was deleted or has moved to other nodes, and brings to
// the coordinator what leaders want their ISRs to be. What it finds on the disk and the
// coordinator does not know is set aside, never deleted: a coordinator that has lost its
// memory must not take the records with it.
package host

// Package host keeps the partitions of this node as the coordinator wants them:
// it opens the logs of what the node should hold, leads what it should lead,
// and deletes what was deleted. What it finds on the disk and the coordinator
// does not know is set aside, never deleted: a coordinator that has lost its
// memory must not take the records with it.
package host

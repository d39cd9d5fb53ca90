// Package alert decides what an operator should know of: nodes that are down,
// partitions with too few copies in sync, replicas that lag behind or are
// corrupt, disks that run full. It is pure: what the cluster holds and what its
// nodes say of themselves go in, with the time; alerts come out.
//
// An alert fires once its condition has held for a while, and resolves once it
// has not for a while; between two bounds of a figure, and of a node that says
// nothing, it stays as it is. Every node evaluates alerts for itself from the
// same facts, so any of them can be asked; what resolved before a node started
// it does not know.
package alert

// Package capacity reckons how many nodes a load takes, from what was measured of one.
//
// Read takes figures out of what the benchmarks printed: processor time of a record, of a
// copy of it at another node, of a delivery and an acknowledgement, memory and processor
// time of an idle connection, bytes a second of a disk. Size multiplies them with the load
// of a Case, resource by resource, and divides by what a node gives: the resource that takes
// most nodes binds. Simulate plays the same load in steps of time, with arrivals by chance,
// bursts, the death of a node and the clients that come back from it, so that what the
// arithmetic leaves out can be seen.
//
// It promises that a larger load never takes fewer nodes, and that the same seed plays the
// same. It knows nothing of hot keys, of slow readers, or of a network between the nodes
// that is not as quick as was said.
package capacity

// Package watch streams the coordinator's change feed to other nodes: the whole
// state first, then what changed, and beats in between which tell how fresh it is.
//
// Nothing queues for a slow reader: what it misses is part of the next message.
package watch

// Package replica runs one partition on this node: it takes batches through
// the partition machine into the log, answers producers when the log has made
// them durable, and lets readers see what is committed.
//
// One lock guards the machine and what is under way. Nothing waits while it is
// held: the log's Append only queues. Batches enter the log in the order in
// which the machine judged them, and the log reports them durable in that
// order, so the oldest flight is always the one that lands.
//
// An answer leaves from one point only, land: a repeat of a record that is
// still under way joins the newest flight and is answered with it, so no answer
// says more than the disk does.
package replica

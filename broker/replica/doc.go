// Package replica runs one partition on this node: at its leader it takes batches
// through the partition machine into the log, brings them to the followers and answers
// producers once they are kept; at a follower it takes the leader's batches into the log
// and says what is on the disk; at both it lets readers see what is committed.
//
// It has no goroutine and no clock of its own. Whoever calls it tells the time by
// Config.Now; news for other brokers are announced to Config.Outlet and fetched by
// whoever carries them (Push, Say). So a simulation drives it as the node does.
//
// One lock guards the machines and who waits. Nothing waits while it is held: the log's
// Append only queues, and answers, announcements and reads of the log happen after it is
// free. A cut of the log at a follower is the one long step: meanwhile the replica takes
// nothing, and a change of its role waits for the end of it.
//
// An answer leaves from one point only, settle: once the high watermark, or this node's
// disk where that is all that was asked for, has reached what was the log's end when the
// batch came. So no answer says more than the disks do, and neither does one to a repeat.
package replica

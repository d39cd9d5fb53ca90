// Package lease runs one consumer group on one partition, at the partition's leader: who
// holds which record until when, what waits for its next delivery, what is acknowledged
// and not committed yet, what is on its way to the dead-letter topic. It is pure: what was
// read, what members ask for, what the coordinator says and the time come in, leases,
// verdicts and commits go out. Package groups runs it.
//
// # The life of a record
//
//	           Take                      Settle: ack, through
//	available ───────> leased ──────────────────────────────> acking ──> done
//	    ^                │ nack, deadline, lost member          (Delta, Committed)
//	    │   backoff over v
//	    └───────────── waiting ──last delivery, reject──> dying ──intent──> published ──> dead
//
// A record that was read and is not done is in exactly one of these states. There are at
// most cluster.MaxUnfinished of them; done records are not kept, only where they lie, so a
// machine costs about 150 bytes for each unfinished record, and less than a kilobyte besides.
//
// # The life of a machine
//
// Begin takes the group as it is now and the progress that the coordinator holds. From
// then on:
//
//   - See tells of every change of the group. False: the group was moved to other offsets,
//     or is another one. The machine is over then; begin one anew with fresh progress.
//   - Moved tells of the log's start and its high watermark, when either moves.
//   - Wants says from where, and how many records are to be read so that so many can be
//     leased; Offer takes them. Offsets that are not among them are holes and count as done.
//   - Take leases records to a member, Settle takes what the member says of them.
//   - Tick lets time pass; Deadline says when that is wanted next.
//   - Delta gives what is to be committed now. One is under way at a time: Committed or
//     Unknown ends it. Answers then has the tokens of the Settle calls that are decided.
//   - Letters are the records to append to the dead-letter topic; Published says that one
//     is there.
//   - Free says that the partition can go to its next owner.
//   - End gives up: every token is answered. A machine that is over, because a commit
//     says so or See did, has ended by itself; Over tells.
//
// # What counts
//
// A lease names the life of the member and, in exclusive mode, the assignment. Only the
// latest lease of a record can be acknowledged, and only under the epochs that it names.
// A member whose lease ran out, and who acknowledges before the record is in other hands,
// is believed: nobody else will have worked on it. So is one whose lease was given by
// another leader, if there was one. Such an acknowledgement ends that one record, and moves nothing past
// others. To acknowledge what is processed already is no error.
//
// Every lease that ends without an acknowledgement was a delivery, and after the last one
// the record is dead. Only a takeover is forgiven: the new leader gives the record again
// under the number it had.
//
// # Whose turn
//
// In exclusive mode records go out by offset, to the owner alone. A record that failed
// holds back later ones of its key that were never delivered, until it is leased again or
// ends. Nothing goes to an owner while leases of the one before may be alive: those that
// this machine gave, and, where that owner did not let go, those that a former leader may
// have given.
//
// In shared mode records go out by offset to whoever asks, whatever their keys.
package lease

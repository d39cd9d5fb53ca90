// Package storage keeps the logs of all partitions of one data folder.
//
// # The life of a batch
//
// Append puts a batch into its log's tail, in memory, and into the journal's
// queue. Once the journal has written and synced it, together with whatever
// other logs queued meanwhile, the batch is durable and its owner hears so.
// Later the flusher writes what is durable from the tail to the log's active
// segment, without a sync. From time to time a checkpoint syncs the segments
// that changed, one by one or, where there are many, the file system as a whole,
// and keeps the state of every log in one journal entry; the journal before it
// is not needed any more.
//
// # What is true at any moment
//
//   - A log is its segments up to flushed, then its tail. A batch leaves the
//     tail only once it is in the segment, so a reader never sees a hole.
//   - Segments hold only what was durable in the journal. So a batch found
//     behind what checkpoint and journal tell proves that the journal lost it:
//     it is kept and reported.
//   - State lives in the journal alone: the marks of a checkpoint and the
//     entries after it. Files are described by it. Indexes are caches, each
//     entry with a checksum of its own; producer snapshots count only if an
//     entry names them by offset and checksum.
//   - What the state says of a log and the journal position up to which it says
//     so change together, so replay applies each entry once, in order.
//   - Nothing unexplained is deleted: it goes to quarantine/.
//   - The first entry of a log says that it begins. What the journal holds of a
//     partition of that name from before, and was taken out, stays dead.
//
// # Positions
//
// Batches of voids take no offset, so replicas count in positions: an offset and how
// many of those stand there. Start, flushed and end of a log are positions, and so
// is where an epoch began. The count goes on although what stood there first is gone
// with a segment, so all replicas number alike. Whatever stands at one offset lies in
// one segment.
//
// # Damage
//
// A bad batch below a mark is damage: the log serves what lies before it and
// refuses everything else, appends included, until somebody repairs it. A
// corrupt journal makes the whole folder read-only: what is proven is served,
// nothing is written, so that nothing is made worse. A scrub reads every segment
// again from time to time. Where others have copies, Replace sets a damaged log
// aside and leaves a fresh one to fetch into, and Renew does so with a whole folder
// whose journal is corrupt.
//
// # What it does not do
//
// It does not decide: offsets, epochs and timestamps are the owner's, and so is
// what a producer may do; the producer state is bytes here. It does not know
// what is committed; callers read up to the limit they give.
//
// # Locks
//
// A log has two: flushMu for whoever changes segment files, held over I/O and
// never waited for by clients, and mu for the description, never held over I/O.
// The order is flushMu, mu, the journal's queue. The owner's snapshot function
// is called with neither.
package storage

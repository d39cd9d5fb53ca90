// Package deliver carries committed records to readers without a group.
//
// The way of a record: a partition with at least one subscription has one feed,
// which follows the partition's end and writes each committed batch into its
// ring once, already encoded as the lines that clients get. A subscription
// holds nothing but the offset of the next record for each of its partitions.
// While that offset lies in the ring it is served from the ring; while it lies
// before, the log itself is read, in bounded pieces, until the offset meets the
// ring. There is no splice of history and live, and no queue for a reader: one
// that does not read is an offset that does not move. One that has read all there
// is waits in its feed's parking, by what its filter wants: a record wakes those
// that want it, and moves the others on without a look at them.
//
//	Resolve    a request ("latest", a cursor, …) to offsets, or a gap that says why not
//	Subscribe  offsets to a Subscription: Next gives shared runs of encoded messages
//	Poll       offsets to one answer, at once or as soon as there is something
//
// Promised: every reader sees exactly the slice of the log from its offset on
// that its filter lets through, in the order of each partition, or is told of a
// gap. Not promised: an order between partitions.
//
// Hub.Run owns the goroutines of the feeds, the first subscriber of a partition
// starts one, the last one ends it. A Subscription belongs to the goroutine
// that calls Next.
package deliver

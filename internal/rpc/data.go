package rpc

import (
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/record"
)

// Acks is how far a record must be kept before its producer hears of it.
type Acks uint8

const (
	AcksAll    Acks = iota // durable on every in-sync replica
	AcksLeader             // durable on the leader
	AcksNone               // taken in
)

// Append asks a partition's leader to keep a batch.
type Append struct {
	Partition ident.Partition
	// Epoch is the leader epoch the sender routed by; 0 means whatever the
	// leader's is. Another one than the leader's is Fenced.
	Epoch ident.Epoch
	// Batch as the sender sealed it: the leader writes its own part of the
	// header in place, so the sender gives the bytes away.
	Batch record.Batch
	Acks  Acks
}

// Appended answers an Append. Either Err holds for the whole batch, or
// Records has one entry for each record (and void) of it, in order.
type Appended struct {
	Err     error // a *fault.Error
	Records []RecordResult
}

// RecordResult is the fate of one record.
type RecordResult struct {
	Err       error        // a *fault.Error; nil: kept (or found again)
	Offset    ident.Offset // -1: a duplicate older than the window
	Timestamp int64        // ms since 1970; 0: not known any more
	Duplicate bool
}

// Bounds of a partition's readable records.
type Bounds struct {
	Start ident.Offset // the log start: the first offset still kept
	HW    ident.Offset // one past the last committed offset
	Epoch ident.Epoch  // the current leader epoch
}

// BoundsOf asks for the bounds of a partition, and may wait until its high
// watermark is above After; -1 does not wait.
type BoundsOf struct {
	Partition ident.Partition
	After     ident.Offset
}

// BoundsAnswer is the answer to one BoundsOf.
type BoundsAnswer struct {
	Bounds Bounds
	Err    error // a *fault.Error
}

// Read asks for committed records.
type Read struct {
	Partition ident.Partition
	Offset    ident.Offset // the first record wanted; the answer may begin with earlier records of its batch
	MaxBytes  int          // at least one whole batch comes, however large
}

// ReadResult answers a Read: whole batches back to back, all below Bounds.HW.
// Empty when Offset == HW. An Offset below the start is OffsetExpired, above
// the HW OffsetNotFound; Bounds is filled in all the same.
type ReadResult struct {
	Batches []byte // immutable: shared with every other reader
	Bounds  Bounds
}

// PartitionLoad is what a node reports of one partition for descriptions and metrics.
type PartitionLoad struct {
	Partition ident.Partition
	Bounds    Bounds
	Bytes     int64
	Leads     bool // this node is its leader
	Serves    bool // readers are served here
	Damaged   bool // it is damaged, or stopped because its leader contradicts it
	// What follows is a leader's.
	Missing int   // replicas outside the ISR
	Lag     int64 // records that the replica furthest behind has yet to put on its disk
}

// Follow opens a replication stream: a follower follows all partitions that the
// other broker leads. Both ends' lives are said once, for a stream belongs to one
// life on each side; a mismatch ends it with Fenced.
type Follow struct{ Follower, Leader cluster.Life }

// Standing says how a follower's log ends. It opens the following of a partition in a
// leader epoch, and follows each truncation until both agree.
type Standing struct {
	Partition ident.Partition
	Epoch     ident.Epoch // the leader epoch that the follower knows
	End       record.Position
	Last      ident.Epoch // of its last batch; 0: it has none
	// Version is of the partition as the follower knows it: the log is the one that it
	// holds at that version.
	Version uint64
}

// Divergence answers a Standing. Where Agreed, what the follower has is the leader's
// log up to its end, and pushes from there follow. Else the follower cuts its log to
// where Last, the largest epoch that the leader knows and that is not above the
// follower's, ended in both, and says where it stands then.
type Divergence struct {
	Partition ident.Partition
	Epoch     ident.Epoch // the leader epoch
	Agreed    bool
	Last      ident.Epoch
	End       record.Position // of Last at the leader; where it knows none so old, the position its log starts at
	// Start is the leader's log start. A follower that ends below it drops all, and
	// begins there with the producer state as of ProducersAt.
	Start       ident.Offset
	Producers   []byte
	ProducersAt ident.Offset
	// Of and OfLast are the End and Last that it answers. Where the follower's log
	// ends elsewhere by now, it says nothing of it.
	Of     record.Position
	OfLast ident.Epoch
}

// Push brings a follower batches of a partition, or none: news alone.
type Push struct {
	Partition ident.Partition
	Epoch     ident.Epoch
	Prev      record.Position // where Batches begin
	PrevEpoch ident.Epoch     // of the batch before them; 0: there is none
	HW        ident.Offset
	Start     ident.Offset // the leader's log start
	Batches   []byte       // whole batches back to back
}

// Held acknowledges what a follower has on its disk.
type Held struct {
	Partition ident.Partition
	Epoch     ident.Epoch
	Durable   record.Position
	// Watched says that somebody waits at the follower for the high watermark to move:
	// it is to hear at once of a new one.
	Watched bool
}

// FromFollower is what a follower sends: any number of each.
type FromFollower struct {
	Standings []Standing
	Held      []Held
}

// FromLeader is what a leader sends. An empty one says that it lives.
type FromLeader struct {
	Divergences []Divergence
	Pushes      []Push
	Refused     []Refused
}

// Refused says that the other end does not lead (or hold) a partition in the epoch
// that a Standing named, yet or any more; the follower asks again once it knows more.
type Refused struct {
	Partition ident.Partition
	Epoch     ident.Epoch // the newest that the other end knows
}

// Clock is a moment as records carry it: milliseconds since 1970.
func Clock(t time.Time) int64 { return t.UnixMilli() }

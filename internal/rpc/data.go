package rpc

import (
	"time"

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
}

// Clock is a moment as records carry it: milliseconds since 1970.
func Clock(t time.Time) int64 { return t.UnixMilli() }

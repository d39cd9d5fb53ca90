package publish

import (
	"sync"
	"time"

	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

const (
	// batchBytes is where a waiting batch takes no more records.
	batchBytes = 1 << 20
	// batchRecords likewise.
	batchRecords = 8192
	// ownRecords likewise, of records that the lane numbers: what a leader
	// remembers of a producer, so that it knows a whole batch again.
	ownRecords = 1024
)

// waiter is one record under way. Its lane's lock guards it until its batch has
// ended, and from then on it belongs to whoever ends the batch.
type waiter struct {
	deadline time.Time
	bytes    int64
	tag      Tag
	refusal  error // the record is a void; this is the answer once it is kept
	done     func(Result)
	own      bool // numbered by the lane
	none     bool // acks=none: answered when taken in
	answered bool // done was called, or will be by whoever set this
	over     bool // its time is up: a batch that never reached a log goes without it
}

// batch is records that travel together. While it waits it has a builder;
// under way it has its sealed bytes.
type batch struct {
	acks    rpc.Acks
	begun   time.Time       // when its first record came
	builder *record.Builder // nil: sealed
	sealed  record.Batch
	waiters []waiter
	orphan  bool // a try found no leader: its time tells nothing of how quick leaders are
	reached bool // a try may have brought it into a log: from then on it is sent as it is, or not at all
	bare    bool // it has records without any number: a leader does not know them again
	given   bool // the sealed bytes were a leader's to write to: another try takes a copy

	// The records that the lane numbers: how many, and the identity and first
	// number under which they were encoded.
	owned int
	id    ident.ProducerID
	first int64
}

// Batches and builders are used again: what they grow to, the next will need
// too. The bytes of a sealed batch are the leader's, and new each time.
var (
	batches  = sync.Pool{New: func() any { return new(batch) }}
	builders = sync.Pool{New: func() any { return new(record.Builder) }}
)

func newBatch(acks rpc.Acks) *batch {
	b := batches.Get().(*batch)
	b.acks, b.begun, b.builder = acks, time.Now(), builders.Get().(*record.Builder)
	return b
}

// seal ends the time in which the batch takes records.
func (b *batch) seal() {
	b.sealed = b.builder.Seal()
	builders.Put(b.builder)
	b.builder = nil
}

// free gives up a batch that has ended and that nobody knows any more.
func (b *batch) free() {
	clear(b.waiters)
	*b = batch{waiters: b.waiters[:0]}
	batches.Put(b)
}

// takes says whether a record goes into the batch. One with a number of the lane and one
// without any do not travel together: the leader could keep the later of them alone.
func (b *batch) takes(acks rpc.Acks, bytes int, own, bare bool) bool {
	return (acks == b.acks || acks == rpc.AcksNone) && len(b.waiters) < batchRecords && b.builder.Bytes()+bytes <= batchBytes &&
		!(own && (b.owned >= ownRecords || b.bare)) && !(bare && b.owned > 0)
}

// bytes is what the batch's records count at the gate.
func (b *batch) bytes() (n int64) {
	for i := range b.waiters {
		n += b.waiters[i].bytes
	}
	return n
}

package check

import "time"

// Outcome is how a publish ended for the client.
type Outcome uint8

const (
	// Unknown is an operation without an answer, or with one that leaves it open.
	Unknown Outcome = iota
	// OK is an acknowledgement that the record is kept (so not the 202 of acks=none, which is Unknown).
	OK
	// Failed is a refusal that promises that nothing was kept.
	Failed
)

// NoOffset stands where an acknowledgement named no offset.
const NoOffset int64 = -1

// Op is one attempt of a client to publish one record.
type Op struct {
	Process string        // the client, which has one operation at a time or says otherwise by its times
	Invoked time.Duration // by the monotonic clock, since the history began
	Ended   time.Duration // 0: never
	Wall    time.Time     // of the invocation, for people
	Topic   string
	Key     string // "": none
	Value   string // unique in the history, but for repeats of the same record

	// Idempotent says that the system must keep one copy however often the
	// record is sent: it carried a producer and sequence, or an Idempotency-Key.
	Idempotent bool
	Producer   string // "": none; then Sequence means nothing
	Sequence   int64

	Outcome   Outcome
	Error     string // of Failed and Unknown, for people
	Partition int    // of OK
	Offset    int64  // of OK; NoOffset where none was told
	Duplicate bool   // of OK: the answer said that it was a repeat
}

// Guarantee is what a reader is promised.
type Guarantee uint8

const (
	// AtLeastOnce: after a resume some records may come again.
	AtLeastOnce Guarantee = iota
	// ExactlyOnce: no record ever comes twice.
	ExactlyOnce
)

// EventKind says what a reader noted.
type EventKind uint8

const (
	// Message is one record.
	Message EventKind = iota
	// Resume is a new session that goes on where the last one was.
	Resume
	// Gap is the reader's being told that it goes on at Offset, because what
	// is before it is not kept any more.
	Gap
)

// Event is one thing a reader noted, in order.
type Event struct {
	Kind      EventKind
	Partition int
	Offset    int64
	Key       string
	Value     string
}

// Reader is one reader of one topic over all its sessions.
type Reader struct {
	ID        string
	Topic     string
	Guarantee Guarantee
	// From has the first offset the reader asked for, by partition. A
	// partition that is not in it begins with the first record seen, and is
	// not judged if none was.
	From map[int]int64
	// Keys and KeyPrefix select as a subscription does; both empty: everything.
	Keys      []string
	KeyPrefix string
	// Partitions that are read; nil: all.
	Partitions []int
	// Complete says that the reader read until nothing was left.
	Complete bool
	Events   []Event
}

// Record is one record of a log.
type Record struct {
	Offset int64
	Key    string
	Value  string
}

// Log is what one partition holds in the end.
type Log struct {
	Topic     string
	Partition int
	Start     int64 // the log start: retention took what was before
	End       int64 // the high watermark
	Records   []Record
}

// History is everything that was seen.
type History struct {
	Ops     []Op
	Readers []Reader
	Logs    []Log
}

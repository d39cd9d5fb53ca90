package check

import "fmt"

// Promise names what the system promised and what a violation broke.
type Promise uint8

const (
	// Kept: an acknowledged record stands in the log where the acknowledgement said.
	Kept Promise = iota
	// Refused: a record whose every attempt was refused is not in the log.
	Refused
	// OneTruth: an offset holds one record, for ever and for everybody.
	OneTruth
	// Contiguous: offsets of a log go up by one from its start to its end.
	Contiguous
	// OneCopy: an idempotent record stands once, any other at most as often as it was sent.
	OneCopy
	// ProducerOrder: a producer's sequences go up in the log.
	ProducerOrder
	// TimeOrder: a record acknowledged before another was sent stands before it.
	TimeOrder
	// KeyPlace: all records of a key are in one partition.
	KeyPlace
	// KeyOrder: a reader first sees the records of a key in the order of the log.
	KeyOrder
	// NoneSkipped: a reader misses nothing that it was not told of, and is told
	// of a gap only where something is gone.
	NoneSkipped
	// NoneRepeated: a reader sees a record again only after a resume, and
	// never where exactly once was promised.
	NoneRepeated
	// NothingInvented: what stands in a log or was read was published, with that key, there.
	NothingInvented
	// NothingVanished: what was read stays.
	NothingVanished
	numPromises
)

var promises = [numPromises]struct{ name, broken string }{
	Kept:            {"kept", "acknowledged records lost or not where they were said to be"},
	Refused:         {"refused", "refused records present"},
	OneTruth:        {"one-truth", "two records at one offset"},
	Contiguous:      {"contiguous", "offsets not contiguous"},
	OneCopy:         {"one-copy", "records that stand more often than they may"},
	ProducerOrder:   {"producer-order", "sequences of a producer out of order"},
	TimeOrder:       {"time-order", "records before those acknowledged earlier"},
	KeyPlace:        {"key-place", "keys in two partitions"},
	KeyOrder:        {"key-order", "records of a key out of order at a reader"},
	NoneSkipped:     {"none-skipped", "records skipped without a gap, or gaps where nothing is missing"},
	NoneRepeated:    {"none-repeated", "records repeated at a reader"},
	NothingInvented: {"nothing-invented", "records that nobody published so"},
	NothingVanished: {"nothing-vanished", "records read that are not there any more"},
}

func (p Promise) String() string {
	if p >= numPromises {
		return fmt.Sprintf("promise(%d)", uint8(p))
	}
	return promises[p].name
}

// Promises lists them all.
func Promises() []Promise {
	all := make([]Promise, numPromises)
	for i := range all {
		all[i] = Promise(i)
	}
	return all
}

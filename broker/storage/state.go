package storage

import (
	"sort"

	"tidewire/broker/journal"
	"tidewire/internal/ident"
	"tidewire/internal/record"
)

// segment is one file of a log as the log knows it: what lies beyond bytes in
// the file does not count.
type segment struct {
	base    ident.Offset
	bytes   int64
	firstMs int64 // timestamp of its first batch
	lastMs  int64 // and of its last
}

// epochStart says where the batches of a leader epoch begin.
type epochStart struct {
	epoch ident.Epoch
	start ident.Offset
}

// maxEpochs bounds the history that a log keeps; the oldest go first.
const maxEpochs = 1024

// snapshotRef names a producer snapshot. A file that no ref names is nothing:
// offsets that were never acknowledged may be given out again after a crash,
// and a file's name alone would not tell.
type snapshotRef struct {
	at    ident.Offset
	bytes uint32 // 0: there was no producer; no file is needed
	sum   uint32
}

// maxSnapshots are kept: a truncation needs an older one.
const maxSnapshots = 2

// state is what a checkpoint keeps of a log, and what replay changes.
type state struct {
	start   ident.Offset // the first offset that is kept
	flushed ident.Offset // end of what the segments hold
	next    ident.Offset // end of the log; from flushed on it is in memory
	epoch   ident.Epoch  // of the last batch; 0: none yet
	lastMs  int64        // timestamp of the last batch
	applied journal.Position
	// applied is the place in the journal up to which its entries of this log
	// are in the segments: replay skips them.
	segs   []segment     // the last one is the active one; may be empty
	epochs []epochStart  // ascending
	snaps  []snapshotRef // newest first
}

// extend takes in a batch at the end.
func (s *state) extend(h record.Header) {
	if h.Epoch > s.epoch {
		s.epochs = append(s.epochs, epochStart{h.Epoch, h.Base})
		if len(s.epochs) > maxEpochs {
			s.epochs = append(s.epochs[:0:0], s.epochs[1:]...)
		}
	}
	s.epoch, s.lastMs, s.next = h.Epoch, h.Timestamp, h.Next()
}

// advance moves the start up and drops what lies below it.
func (s *state) advance(start ident.Offset) (dropped []segment) {
	if start <= s.start {
		return nil
	}
	s.start = start
	n := 0
	for n < len(s.segs) && s.segEnd(n) <= start {
		n++
	}
	dropped, s.segs = s.segs[:n:n], append([]segment(nil), s.segs[n:]...)
	e := 0
	for e+1 < len(s.epochs) && s.epochs[e+1].start <= start {
		e++
	}
	s.epochs = append([]epochStart(nil), s.epochs[e:]...)
	return dropped
}

// segEnd is the offset after the segment's last.
func (s *state) segEnd(i int) ident.Offset {
	if i+1 < len(s.segs) {
		return s.segs[i+1].base
	}
	return s.flushed
}

// find is the segment that holds an offset below flushed.
func (s *state) find(o ident.Offset) int {
	return sort.Search(len(s.segs), func(i int) bool { return s.segs[i].base > o }) - 1
}

// cutEpochs forgets epochs that begin at or after an offset.
func (s *state) cutEpochs(to ident.Offset) {
	for len(s.epochs) > 0 && s.epochs[len(s.epochs)-1].start >= to {
		s.epochs = s.epochs[:len(s.epochs)-1]
	}
	s.epoch = 0
	if n := len(s.epochs); n > 0 {
		s.epoch = s.epochs[n-1].epoch
	}
}

// cutSnaps forgets snapshots of more than what is left.
func (s *state) cutSnaps(to ident.Offset) {
	keep := s.snaps[:0:0]
	for _, r := range s.snaps {
		if r.at <= to {
			keep = append(keep, r)
		}
	}
	s.snaps = keep
}

func (s *state) addSnap(r snapshotRef) {
	snaps := []snapshotRef{r}
	for _, old := range s.snaps {
		if old.at != r.at && len(snaps) < maxSnapshots {
			snaps = append(snaps, old)
		}
	}
	s.snaps = snaps
}

func (s *state) bytes() (n int64) {
	for i := range s.segs {
		n += s.segs[i].bytes
	}
	return n
}

// epochEnd is the largest epoch known that is not above e, and where it ended.
func (s *state) epochEnd(e ident.Epoch) (ident.Epoch, ident.Offset) {
	i := sort.Search(len(s.epochs), func(i int) bool { return s.epochs[i].epoch > e })
	end := s.next
	if i < len(s.epochs) {
		end = s.epochs[i].start
	}
	if i == 0 {
		return 0, end
	}
	return s.epochs[i-1].epoch, end
}

package storage

import (
	"cmp"
	"slices"
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

// epochStart says where the first batch of a leader epoch stands.
type epochStart struct {
	epoch   ident.Epoch
	at      record.Position
	guessed bool // of an older format, which did not count voids
}

// maxEpochs bounds the history that a log keeps; the oldest go first. What the
// log says of an epoch that went is what it says of one it never had: nothing is
// shared with it above the log's start.
const maxEpochs = 1024

// snapshotRef names a producer snapshot. A file that no ref names is nothing:
// offsets that were never acknowledged may be given out again after a crash,
// and a file's name alone would not tell.
type snapshotRef struct {
	at    ident.Offset
	bytes uint32 // 0: there was no producer; no file is needed
	sum   uint32
}

// maxSnapshots are kept, the newest: a truncation needs an older one. Beside them goes
// the newest one of what is known to be committed: nothing takes that away, so a log
// that does not begin at 0 has always one to begin with, and to give to whoever begins
// where it does.
const maxSnapshots = 2

// state is what a checkpoint keeps of a log, and what replay changes. Each of
// its three places goes with a number of voids, which makes it a position.
type state struct {
	start        ident.Offset // the first offset that is kept
	startVoids   int          // at start that went with what was below it
	startMs      int64        // timestamp of the last batch before start
	flushed      ident.Offset // end of what the segments hold
	flushedVoids int
	next         ident.Offset // end of the log; from flushed on it is in memory
	nextVoids    int
	epoch        ident.Epoch // of the last batch; 0: none yet
	lastMs       int64       // timestamp of the last batch
	applied      journal.Position
	// applied is the place in the journal up to which its entries of this log
	// are in the segments: replay skips them.
	segs   []segment     // the last one is the active one; may be empty
	epochs []epochStart  // ascending
	snaps  []snapshotRef // newest first
	// ahead is the offset of the producer state that the log was begun with, which
	// counts although the log may not reach so far yet; 0: none.
	ahead ident.Offset
	// committed is a lower bound of what is committed, as the log was told last.
	committed ident.Offset
}

// inSegments is the state without what is only in memory: a log that ends where
// its segments do.
func (s *state) inSegments() state {
	c := *s
	c.setNext(s.flushedPos())
	c.lastMs = s.startMs
	if n := len(s.segs); n > 0 {
		c.lastMs = s.segs[n-1].lastMs
	}
	c.cutEpochs(0)
	if c.next >= c.ahead {
		c.ahead = 0
	}
	return c
}

func (s *state) startPos() record.Position {
	return record.Position{Offset: s.start, Voids: s.startVoids}
}

func (s *state) flushedPos() record.Position {
	return record.Position{Offset: s.flushed, Voids: s.flushedVoids}
}

func (s *state) nextPos() record.Position { return record.Position{Offset: s.next, Voids: s.nextVoids} }

func (s *state) setFlushed(p record.Position) { s.flushed, s.flushedVoids = p.Offset, p.Voids }
func (s *state) setNext(p record.Position)    { s.next, s.nextVoids = p.Offset, p.Voids }

// extend takes in a batch at the end.
func (s *state) extend(h record.Header) {
	if h.Epoch > s.epoch {
		s.epochs = append(s.epochs, epochStart{epoch: h.Epoch, at: s.nextPos()})
		if len(s.epochs) > maxEpochs {
			s.epochs = append(s.epochs[:0:0], s.epochs[1:]...)
		}
	}
	s.setNext(s.nextPos().After(h))
	s.epoch, s.lastMs = h.Epoch, h.Timestamp
}

// advance moves the start up and drops what lies below it.
func (s *state) advance(start record.Position) (dropped []segment) {
	if !s.startPos().Before(start) {
		return nil
	}
	s.start, s.startVoids = start.Offset, start.Voids
	n := 0
	for n < len(s.segs) && !start.Before(s.segEndPos(n)) {
		s.startMs = max(s.startMs, s.segs[n].lastMs)
		n++
	}
	dropped, s.segs = s.segs[:n:n], append([]segment(nil), s.segs[n:]...)
	e := 0
	for e+1 < len(s.epochs) && !start.Before(s.epochs[e+1].at) {
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

// segEndPos is the position after the segment's last batch. Voids that an older
// program let stand at its end, where it is not the last one, do not count.
func (s *state) segEndPos(i int) record.Position {
	if i+1 < len(s.segs) {
		return record.At(s.segs[i+1].base)
	}
	return s.flushedPos()
}

// find is the segment that holds an offset below flushed.
func (s *state) find(o ident.Offset) int {
	return sort.Search(len(s.segs), func(i int) bool { return s.segs[i].base > o }) - 1
}

// cutEpochs forgets epochs that begin at or after the end. last is the epoch of
// the last batch that is left, if it is known.
func (s *state) cutEpochs(last ident.Epoch) {
	for len(s.epochs) > 0 && !s.epochs[len(s.epochs)-1].at.Before(s.nextPos()) {
		s.epochs = s.epochs[:len(s.epochs)-1]
	}
	s.epoch = 0
	if n := len(s.epochs); n > 0 {
		s.epoch = s.epochs[n-1].epoch
	}
	if last > s.epoch { // the history does not go back so far: it shares nothing with any before it
		s.epoch, s.epochs = last, []epochStart{{epoch: last, at: s.startPos()}}
	}
}

// cutSnaps forgets snapshots of more than what is left. Where none of them is of the start
// or above, which only an unclean election brings about, nothing is known of who produced below the start: that is
// said as well, or nobody could begin where this log does.
func (s *state) cutSnaps() {
	s.committed = min(s.committed, s.next)
	keep := s.snaps[:0:0]
	for _, r := range s.snaps {
		if r.at <= s.next {
			keep = append(keep, r)
		}
	}
	if s.start > 0 && !slices.ContainsFunc(keep, func(r snapshotRef) bool { return r.at >= s.start }) {
		keep = []snapshotRef{{at: s.start}}
		s.committed = max(s.committed, s.start)
	}
	s.snaps = keep
}

// addSnaps takes in snapshots, and forgets what nobody needs any more.
func (s *state) addSnaps(more ...snapshotRef) {
	all := slices.Clone(s.snaps)
	for _, r := range more {
		all = slices.DeleteFunc(all, func(old snapshotRef) bool { return old.at == r.at })
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b snapshotRef) int { return cmp.Compare(b.at, a.at) })
	kept := all[:0]
	pinned := false
	for _, r := range all {
		pins := !pinned && r.at <= s.committed
		if r.at >= s.start && (pins || len(kept) < maxSnapshots) {
			kept = append(kept, r)
			pinned = pinned || pins
		}
	}
	s.snaps = kept
}

func (s *state) bytes() (n int64) {
	for i := range s.segs {
		n += s.segs[i].bytes
	}
	return n
}

// epochEnd is the largest epoch known that is not above e, and where it ended.
func (s *state) epochEnd(e ident.Epoch) (ident.Epoch, record.Position) {
	i := sort.Search(len(s.epochs), func(i int) bool { return s.epochs[i].epoch > e })
	end := s.nextPos()
	if i < len(s.epochs) {
		end = s.epochs[i].at
	}
	if i == 0 {
		return 0, end
	}
	return s.epochs[i-1].epoch, end
}

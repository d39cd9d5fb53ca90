package storage

import (
	"sync/atomic"
	"time"

	"tidewire/internal/fault"
)

// freeEvery is how often the file system is asked for its free space at most.
const freeEvery = 100 * time.Millisecond

// disk watches the free space without asking for every append.
type disk struct {
	began   time.Time
	asked   atomic.Int64 // ns since began of the last answer
	asking  atomic.Bool
	last    atomic.Pointer[freeSpace]
	settled atomic.Int64 // bytes written to segments since the start
	refused atomic.Bool  // so that a change is logged once
}

// freeSpace is an answer of the file system, and what had been written before
// it was asked: what was written since is not in the answer. At the speed of a
// fast disk that is more in freeEvery than has to stay free.
type freeSpace struct {
	free    int64
	settled int64 // disk.settled
	journal int64 // JournalBytes
}

// Free is the free space of the data folder as it was known at most a moment ago.
func (s *Store) Free() int64 { return s.freeSpace().free }

func (s *Store) freeSpace() freeSpace {
	now := int64(time.Since(s.disk.began))
	if now-s.disk.asked.Load() > int64(freeEvery) && s.disk.asking.CompareAndSwap(false, true) {
		// Before it is asked: what is counted by then is on the disk.
		f := freeSpace{settled: s.disk.settled.Load(), journal: s.JournalBytes()}
		if n, err := s.cfg.FS.Free(s.cfg.Dir); err == nil {
			f.free = n
			s.disk.last.Store(&f)
		}
		s.disk.asked.Store(now)
		s.disk.asking.Store(false)
	}
	if last := s.disk.last.Load(); last != nil {
		return *last
	}
	return freeSpace{}
}

// spoken is how many of the free bytes of the last answer are not to be had:
// what is on its way to the disk, and what went there since. Each byte is
// counted there before it leaves here, and is read in the other order: it may
// be counted twice for a moment, and is never left out.
func (s *Store) spoken() (free, spoken int64) {
	unflushed, preparing := s.unflushed.Load(), s.journal.Preparing()
	last := s.freeSpace()
	// A released file of the journal may have been unlinked since.
	made := max(0, s.JournalBytes()-last.journal)
	return last.free, unflushed + preparing + made + s.disk.settled.Load() - last.settled
}

// JournalBytes is what the journal's files take on the disk.
func (s *Store) JournalBytes() int64 {
	if s.journal == nil { // the folder is read-only
		return 0
	}
	return s.journal.Held()
}

// Admit says whether n more bytes can be taken, to be asked before offsets are
// given out: space for the batch is there in the journal and will be there for
// its segment, and enough is left for what frees space again. DiskFull and
// Throttled heal by themselves.
func (l *Log) Admit(n int) error {
	l.mu.Lock()
	err := l.refusalLocked("append", true)
	l.mu.Unlock()
	if err != nil {
		return err
	}
	return l.store.admit(n)
}

// Full says that the disk may not take the next record, however large that is: it is known
// before anything is refused.
func (s *Store) Full() bool {
	if s.journal == nil {
		return false // the folder is read-only, and leads nothing
	}
	free, spoken := s.spoken()
	return free-spoken < s.cfg.MinFreeBytes+largest || fault.Is(s.journal.Room(0), fault.DiskFull)
}

// largest is what a record may have, whatever its topic.
const largest = 16 << 20

func (s *Store) admit(n int) error {
	unflushed := s.unflushed.Load()
	free, spoken := s.spoken()
	left := free - spoken - int64(n)
	full := left < s.cfg.MinFreeBytes
	if s.disk.refused.Load() != full && s.disk.refused.Swap(full) != full {
		s.log.Warn("appends are refused while the disk is too full", "full", full, "free", free, "spoken_for", spoken, "min", s.cfg.MinFreeBytes)
	}
	switch {
	case full:
		return fault.New(fault.DiskFull, "%d bytes are free on the disk and %d of them are spoken for; at least %d have to stay free (min_free_bytes). Nothing was kept; free space or add disk, and it heals by itself",
			free, spoken+int64(n), s.cfg.MinFreeBytes).After(s.cfg.RetrySpace)
	case unflushed > 4*s.cfg.UnflushedBytes && s.flushWait.lacks.Load() == lacksSpace:
		return fault.New(fault.DiskFull, "the disk has no space for the segments. Nothing was kept; free space or add disk, and it heals by itself").After(s.cfg.RetrySpace)
	case unflushed > 4*s.cfg.UnflushedBytes && s.flushWait.lacks.Load() == lacksFiles:
		return fault.New(fault.Throttled, "the node has no open files left for the segments").After(s.cfg.RetrySpace)
	case unflushed > 4*s.cfg.UnflushedBytes:
		return fault.New(fault.Throttled, "%d bytes wait to be written to segments", unflushed).After(freeEvery)
	}
	return s.journal.Room(n)
}

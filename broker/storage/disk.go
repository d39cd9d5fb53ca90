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
	free    atomic.Int64
	refused atomic.Bool // so that a change is logged once
}

// Free is the free space of the data folder as it was known at most a moment ago.
func (s *Store) Free() int64 {
	now := int64(time.Since(s.disk.began))
	if now-s.disk.asked.Load() > int64(freeEvery) && s.disk.asking.CompareAndSwap(false, true) {
		if n, err := s.cfg.FS.Free(s.cfg.Dir); err == nil {
			s.disk.free.Store(n)
		}
		s.disk.asked.Store(now)
		s.disk.asking.Store(false)
	}
	return s.disk.free.Load()
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

func (s *Store) admit(n int) error {
	unflushed := s.unflushed.Load()
	left := s.Free() - unflushed - s.journal.Preparing() - int64(n)
	full := left < s.cfg.MinFreeBytes
	if s.disk.refused.Load() != full && s.disk.refused.Swap(full) != full {
		s.log.Warn("appends are refused while the disk is too full", "full", full, "free", s.disk.free.Load(), "min", s.cfg.MinFreeBytes)
	}
	switch {
	case full:
		return fault.New(fault.DiskFull, "%d bytes are free on the disk and %d of them are spoken for; at least %d have to stay free (min_free_bytes). Nothing was kept; free space or add disk, and it heals by itself",
			s.disk.free.Load(), s.disk.free.Load()-left, s.cfg.MinFreeBytes).After(s.cfg.RetrySpace)
	case unflushed > 4*s.cfg.UnflushedBytes && s.flushWait.lacks.Load() == lacksSpace:
		return fault.New(fault.DiskFull, "the disk has no space for the segments. Nothing was kept; free space or add disk, and it heals by itself").After(s.cfg.RetrySpace)
	case unflushed > 4*s.cfg.UnflushedBytes && s.flushWait.lacks.Load() == lacksFiles:
		return fault.New(fault.Throttled, "the node has no open files left for the segments").After(s.cfg.RetrySpace)
	case unflushed > 4*s.cfg.UnflushedBytes:
		return fault.New(fault.Throttled, "%d bytes wait to be written to segments", unflushed).After(freeEvery)
	}
	return s.journal.Room(n)
}

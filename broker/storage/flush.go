package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"tidewire/internal/ident"
	"tidewire/internal/vfs"
)

// flushChunkBytes is written to a segment at once.
const flushChunkBytes = 4 << 20

// flush writes what is durable in the journal from the tail to the segment
// files. Segments never hold anything that was not durable: that is what makes
// a batch found in one proof that it was.
func (l *Log) flush() error {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	return l.flushLocked()
}

// flushLocked needs flushMu.
func (l *Log) flushLocked() error {
	for {
		l.mu.Lock()
		if l.deleted {
			l.mu.Unlock()
			return nil
		}
		items := l.tail[:l.durableTail]
		var active segment
		n := len(l.segs)
		if n > 0 {
			active = l.segs[n-1]
		}
		cfg := l.cfg
		l.mu.Unlock()
		if len(items) == 0 {
			return nil
		}
		if n == 0 || rolls(cfg, active, items[0]) {
			if err := l.roll(items[0]); err != nil {
				return err
			}
			continue
		}
		if err := l.writeItems(cfg, active, items); err != nil {
			return err
		}
	}
}

// rolls says whether a batch begins a new segment.
func rolls(cfg LogConfig, active segment, it *item) bool {
	if active.bytes == 0 || it.head.Base == active.base {
		return false // a segment's name is its base: two cannot share one
	}
	if it.at.Voids > 0 {
		return false // whatever stands at one offset lies in one segment
	}
	return active.bytes+int64(len(it.batch)) > cfg.SegmentBytes ||
		cfg.SegmentAge > 0 && it.head.Timestamp-active.firstMs >= cfg.SegmentAge.Milliseconds()
}

// writeItems appends as many items as belong into the active segment, and only
// then takes them off the tail: a reader finds them in one place or the other.
func (l *Log) writeItems(cfg LogConfig, active segment, items []*item) error {
	grown := active
	n, size := 0, 0
	for _, it := range items {
		if n > 0 && (size+len(it.batch) > flushChunkBytes || rolls(cfg, grown, it)) {
			break
		}
		size += len(it.batch)
		if grown.bytes == 0 {
			grown.firstMs = it.head.Timestamp
		}
		grown.bytes += int64(len(it.batch))
		grown.lastMs = it.head.Timestamp
		n++
	}
	buf := l.store.buffers.Get().(*[]byte)
	defer l.store.buffers.Put(buf)
	b := slices.Grow((*buf)[:0], size)
	for _, it := range items[:n] {
		b = append(b, it.batch...)
	}
	if cap(b) <= flushChunkBytes {
		*buf = b
	}
	if err := l.writeSegment(active.base, active.bytes, items[0].head.Base, b); err != nil {
		return err
	}
	last := items[n-1]
	l.mu.Lock()
	pos := active.bytes
	for _, it := range items[:n] {
		l.index.add(pos, it.head)
		pos += int64(len(it.batch))
	}
	l.segs[len(l.segs)-1] = grown
	l.setFlushed(last.after())
	l.applied = max(l.applied, last.end) // a truncation behind it may count already
	l.tail = slices.Clone(l.tail[n:])
	l.durableTail -= n
	l.tailBytes -= int64(len(b))
	l.readyBytes -= int64(len(b))
	l.mu.Unlock()
	l.store.disk.settled.Add(int64(len(b))) // before it is no more unflushed
	l.store.unflushed.Add(-int64(len(b)))
	return nil
}

// writeSegment writes batches, the first of which begins at an offset.
func (l *Log) writeSegment(base ident.Offset, pos int64, first ident.Offset, b []byte) error {
	f, err := l.openSegment(base)
	if vfs.IsHarmed(err) {
		return l.rescue(base, pos, first, b, err)
	}
	if err != nil {
		return err
	}
	defer l.store.files.release(f)
	f.dirty.Store(true)
	l.unsynced.segment(base)
	if _, err = f.WriteAt(b, pos); err == nil && len(b) >= l.store.cfg.FlushBytes {
		// A checkpoint that found all of it to write would hold up the journal's
		// own syncs for as long as that takes.
		vfs.WriteSoon(f.File, pos, int64(len(b)))
	}
	return err
}

// roll begins a new segment.
func (l *Log) roll(it *item) error {
	l.persistIndex()
	if err := l.createSegment(it.head.Base); err != nil && !vfs.IsHarmed(err) {
		return err // a harm is met again, with the batches at hand
	}
	l.indexed = 0
	l.mu.Lock()
	defer l.mu.Unlock()
	l.index = indexer{every: l.store.cfg.IndexBytes}
	l.segs = append(slices.Clone(l.segs), segment{base: it.head.Base, firstMs: it.head.Timestamp, lastMs: it.head.Timestamp})
	return nil
}

// createSegment makes an empty file. One that is there already was left by a
// crash: the state of the log does not name it, and whatever of it counts is in
// the tail that is about to be written.
func (l *Log) createSegment(base ident.Offset) error {
	if err := l.removeSegment(base); err != nil {
		return err
	}
	f, err := l.create(l.path(base, segmentSuffix))
	if err != nil {
		return err
	}
	return f.Close()
}

// create makes a file in the partition's folder, and the folder again if
// somebody took it away.
func (l *Log) create(name string) (vfs.File, error) {
	if err := l.ensureDir(); err != nil {
		return nil, err
	}
	f, err := l.store.cfg.FS.Create(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	l.lostFolder(err)
	if err := l.ensureDir(); err != nil {
		return nil, err
	}
	return l.store.cfg.FS.Create(name)
}

// ensureDir makes the partition's folder; the next checkpoint makes it durable.
func (l *Log) ensureDir() error {
	if l.dirMade {
		return nil
	}
	topic := filepath.Dir(l.dir)
	for made := false; !made; {
		err := l.store.cfg.FS.Mkdir(topic)
		if errors.Is(err, fs.ErrNotExist) { // the folder of all topics was taken away
			if err = l.store.cfg.FS.Mkdir(filepath.Dir(topic)); err == nil || errors.Is(err, fs.ErrExist) {
				l.store.syncLater(l.store.cfg.Dir)
				err = l.store.cfg.FS.Mkdir(topic)
			}
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		err = l.store.cfg.FS.Mkdir(l.dir)
		if err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		// If the topic's folder is gone again, the deletion of its last other
		// partition found it empty in between. That can happen once for each of
		// them; from here on it is not empty.
		made = !errors.Is(err, fs.ErrNotExist)
	}
	// Also folders that were there already: a former life may have made them
	// and died before its checkpoint.
	l.store.syncLater(filepath.Dir(topic))
	l.store.syncLater(topic)
	l.dirMade, l.dirNew = true, true
	l.unsynced.folder()
	return nil
}

// persistIndex appends the new entries to the index file. It needs flushMu. It
// is a cache, so a failure only means that it is made anew later.
func (l *Log) persistIndex() {
	l.mu.Lock()
	entries := l.index.entries
	if len(entries) == 0 || len(l.segs) == 0 || l.indexed == 0 && len(entries) == 1 {
		l.mu.Unlock()
		return // an entry for the segment's beginning alone tells nothing
	}
	base := l.segs[len(l.segs)-1].base
	l.mu.Unlock()
	name := l.path(base, indexSuffix)
	if err := writeIndex(l.store.cfg.FS, name, indexSeed(l.part, base), l.indexed, entries); err != nil {
		if !vfs.IsNoFiles(err) { // what waits for those is told once, where it matters
			l.store.log.Warn("an index could not be written", "partition", l.part.String(), "err", err)
		}
		return
	}
	l.store.indexes.drop(name)
	l.indexed += len(entries)
	l.unsynced.folder()
	l.mu.Lock()
	l.index.entries = nil
	l.mu.Unlock()
}

// flushSoon tells the flusher of a log: now, if it holds much, or at FlushAge.
func (s *Store) flushSoon(l *Log, now bool) {
	s.dirtyMu.Lock()
	first := len(s.dirty) == 0
	if _, ok := s.dirty[l]; !ok {
		s.dirty[l] = time.Now()
	}
	s.dirtyMu.Unlock()
	if first || now || s.unflushed.Load() > s.cfg.UnflushedBytes || l.ready() >= int64(s.cfg.FlushBytes) {
		select {
		case s.flushKick <- struct{}{}:
		default:
		}
	}
}

func (l *Log) ready() int64 { l.mu.Lock(); defer l.mu.Unlock(); return l.readyBytes }

// due takes the logs whose turn it is off the list, and says when the next one's is.
func (s *Store) due() (logs []*Log, wait time.Duration) {
	s.dirtyMu.Lock()
	defer s.dirtyMu.Unlock()
	now := time.Now()
	all := s.unflushed.Load() > s.cfg.UnflushedBytes
	for l, since := range s.dirty {
		left := s.cfg.FlushAge - now.Sub(since)
		if all || left <= 0 || l.ready() >= int64(s.cfg.FlushBytes) {
			logs = append(logs, l)
			delete(s.dirty, l)
		} else if wait == 0 || left < wait {
			wait = left
		}
	}
	return logs, wait
}

// flushAll flushes logs side by side: where there are more than files may be
// open, each file that makes room is synced first, and syncs that wait together
// take little more than one. lack is what some of them lacked; they are tried again.
func (s *Store) flushAll(logs []*Log) (lack, err error) {
	var lacking atomic.Pointer[error]
	var g errgroup.Group
	g.SetLimit(checkpointers)
	for _, l := range logs {
		g.Go(func() error {
			l.mu.Lock()
			l.waiting = false
			l.mu.Unlock()
			err := l.flush()
			switch {
			case err == nil:
			case passes(err):
				lacking.Store(&err)
				s.flushSoon(l, false)
			default:
				return fmt.Errorf("flush %s: %w", l.part, err)
			}
			return nil
		})
	}
	err = g.Wait()
	if p := lacking.Load(); p != nil {
		lack = *p
	}
	return lack, err
}

// flushLoop writes tails behind. It sleeps without a timer while nothing waits.
func (s *Store) flushLoop(ctx context.Context) error {
	for {
		logs, wait := s.due()
		lack, err := s.flushAll(logs)
		if err != nil {
			return err
		}
		if len(logs) > 0 {
			s.flushWait.note(s.log, "segments", lack)
		}
		if lack != nil {
			wait = s.cfg.RetrySpace
		}
		var timer <-chan time.Time
		if wait > 0 {
			timer = time.After(wait)
		}
		select {
		case <-timer:
		case <-s.flushKick:
		case <-ctx.Done():
			return nil
		}
		if lack != nil { // whoever kicks, the disk is not asked more often than that
			select {
			case <-time.After(s.cfg.RetrySpace):
			case <-ctx.Done():
				return nil
			}
		}
	}
}

package storage

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"
)

// Bits rot where nobody reads. The scrub reads every segment again, slowly, so that
// damage is known, and repaired from another replica, before it is the last copy.

// scrubAfter is how long the first pass waits: the start has other things to do.
const scrubAfter = 5 * time.Minute

// scrubLoop makes one pass after the other until ctx ends.
func (s *Store) scrubLoop(ctx context.Context) error {
	if s.cfg.ScrubBytes < 0 {
		return nil
	}
	wait := min(scrubAfter, s.cfg.ScrubEvery)
	for {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
		began := time.Now()
		s.scrub(ctx, s.cfg.ScrubBytes)
		wait = max(s.cfg.ScrubEvery/10, s.cfg.ScrubEvery-time.Since(began))
	}
}

// ScrubNow makes one pass as fast as the disk allows. It returns early when ctx
// ends; what it found is in Damaged.
func (s *Store) ScrubNow(ctx context.Context) error {
	s.scrub(ctx, 0)
	return ctx.Err()
}

// scrub checks what all logs hold in segments at the moment it comes to them.
func (s *Store) scrub(ctx context.Context, bytesPerSecond int64) {
	began := time.Now()
	logs := s.allLogs()
	slices.SortFunc(logs, func(a, b *Log) int { return comparePartitions(a.part, b.part) })
	for _, l := range logs {
		l.scrub(ctx, bytesPerSecond)
	}
	if ctx.Err() == nil {
		s.metrics.scrubs.Inc()
		s.log.Info("all segments were read again and checked", "logs", len(logs), "damaged", len(s.Damaged()), "took", time.Since(began).String())
	}
}

// scrub checks the segments of one log, up to the first damage.
func (l *Log) scrub(ctx context.Context, bytesPerSecond int64) {
	l.mu.Lock()
	count := len(l.segs)
	l.mu.Unlock()
	for i := 0; i < count && ctx.Err() == nil && l.scrubSegment(ctx, i, bytesPerSecond); i++ {
	}
}

// scrubSegment checks a segment, and says whether to go on behind it.
func (l *Log) scrubSegment(ctx context.Context, i int, bytesPerSecond int64) bool {
	l.mu.Lock()
	if i >= len(l.segs) || l.deleted || l.damage != nil && l.damage.Offset <= l.segs[i].base {
		l.mu.Unlock()
		return false
	}
	seg := l.segs[i]
	v := view{seg: &seg, end: l.segEnd(i), next: l.next, limit: l.next, cuts: l.cuts}
	l.mu.Unlock()
	err := l.walkSegment(ctx, v, bytesPerSecond)
	// Right, or changed meanwhile: the next pass comes. Else it is damage, and known as such.
	return err == nil || ctx.Err() != nil || l.explain(v, err) == nil
}

// walkSegment reads a segment through a handle of its own: what others have open
// stays open.
func (l *Log) walkSegment(ctx context.Context, v view, bytesPerSecond int64) error {
	f, err := l.store.cfg.FS.Open(l.path(v.seg.base, segmentSuffix))
	if err != nil {
		return err
	}
	w := &walker{f: &slowReader{ctx, f, l.store, bytesPerSecond}, part: l.part, end: v.seg.bytes, next: v.seg.base}
	for err == nil {
		_, _, err = w.step()
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, f.Close())
}

// slowReader waits after each read until it has taken its time.
type slowReader struct {
	ctx            context.Context // of the pass that made it, and ends with it
	f              io.ReaderAt
	store          *Store
	bytesPerSecond int64 // 0: no bound
}

func (r *slowReader) ReadAt(b []byte, off int64) (int, error) {
	if r.ctx.Err() != nil {
		return 0, r.ctx.Err()
	}
	n, err := r.f.ReadAt(b, off)
	r.store.metrics.scrubbed.Add(float64(n))
	if r.bytesPerSecond > 0 {
		select {
		case <-time.After(time.Duration(float64(n) / float64(r.bytesPerSecond) * float64(time.Second))):
		case <-r.ctx.Done():
		}
	}
	return n, err
}

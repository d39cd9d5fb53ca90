package storage

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"tidewire/broker/journal"
	"tidewire/internal/vfs"
)

// checkpointLoop makes a checkpoint whenever the journal has grown enough.
func (s *Store) checkpointLoop(ctx context.Context) error {
	for {
		select {
		case <-s.checkKick:
		case <-ctx.Done():
			return nil
		}
		err := s.checkpoint(ctx)
		switch {
		case err == nil:
			s.checkWait.note(s.log, "checkpoint", nil)
			continue
		case ctx.Err() != nil:
			return nil // the last one is made by Run
		case !passes(err):
			return fmt.Errorf("checkpoint: %w", err)
		}
		s.checkWait.note(s.log, "checkpoint", err)
		select {
		case <-time.After(s.cfg.RetrySpace):
		case <-ctx.Done():
			return nil
		}
		s.kickCheckpoint()
	}
}

func (s *Store) kickCheckpoint() {
	select {
	case s.checkKick <- struct{}{}:
	default:
	}
}

// checkpoint makes the segments of every log durable up to a cut of the
// journal, keeps their state in one journal entry, and then gives up the
// journal files below the cut. Appends go on meanwhile.
func (s *Store) checkpoint(ctx context.Context) error {
	s.checkMu.Lock()
	defer s.checkMu.Unlock()
	if err := s.clearLingering(); err != nil {
		return err
	}
	cut, bytes := s.journal.Done(), s.journal.Bytes()
	logs := s.allLogs()
	atOnce := s.owed.Load() || s.whole != nil && countChanged(logs) > s.cfg.syncsAtOnce
	marks, err := s.markAll(ctx, logs, cut.At, !atOnce)
	if err != nil {
		return err
	}
	if atOnce {
		err = s.syncWhole()
	} else {
		err = s.syncDirs()
	}
	if err != nil {
		return err
	}
	out := s.leaving()
	for i, l := range logs {
		if _, left := out[l.part]; left { // since its mark was made
			marks[i] = logMark{}
		}
	}
	if err := s.appendEntry(ctx, journal.Checkpoint, encodeCheckpoint(cut, marks, out)); err != nil {
		return err
	}
	s.journal.Release(cut.At)
	s.checked.Store(bytes)
	s.uncounted.Store(false)
	for i, l := range logs {
		l.checkpointed(marks[i])
	}
	return nil
}

// countedOnDisk makes a checkpoint if the one on the disk did not count voids: what
// was counted at the start, from files that change, is state before an entry is
// written that relies on it.
func (s *Store) countedOnDisk() error {
	if !s.uncounted.Load() || s.readOnly != nil {
		return nil
	}
	return s.checkpoint(context.Background())
}

// countChanged is how many logs have something for a checkpoint.
func countChanged(logs []*Log) (n int) {
	for _, l := range logs {
		l.mu.Lock()
		if l.changes != l.kept {
			n++
		}
		l.mu.Unlock()
	}
	return n
}

// checkpointers is how many logs are synced at once: a file system does many
// syncs in little more than the time of one.
const checkpointers = 16

// markAll brings every log's files up to the cut and takes its state.
func (s *Store) markAll(ctx context.Context, logs []*Log, cut journal.Position, sync bool) ([]logMark, error) {
	marks := make([]logMark, len(logs))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(checkpointers)
	for i, l := range logs {
		if gctx.Err() != nil {
			break
		}
		g.Go(func() (err error) {
			if marks[i], err = l.mark(cut, sync); err != nil {
				return fmt.Errorf("%s: %w", l.part, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return marks, ctx.Err()
}

// logMark is a log's part of a checkpoint.
type logMark struct {
	state       []byte // encoded; nil: the log never kept anything
	snaps       []snapshotRef
	snapshotted bool
	changes     uint64 // the log's count
	unsynced    uint64 // the version of what was not synced yet
}

// mark brings the log's files up to the cut and tells its state. Without sync
// somebody else makes the files durable before the mark is kept.
func (l *Log) mark(cut journal.Position, sync bool) (m logMark, err error) {
	l.mu.Lock()
	m.changes = l.changes
	changed := l.changes != l.kept
	l.mu.Unlock()
	var s snapshotAt
	if changed {
		s = l.takeSnapshot() // before flushMu: its owner has locks of its own
	}
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	if l.isDeleted() { // since it was listed: its folder is gone, and nothing of it is to be kept
		return logMark{}, nil
	}
	if err := l.flushLocked(); err != nil {
		return m, err
	}
	var ref snapshotRef
	if changed {
		l.persistIndex()
		l.mu.Lock()
		m.snapshotted = l.fitsLocked(s, l.start)
		l.mu.Unlock()
		if m.snapshotted {
			ref, err = l.writeSnapshot(s.at, s.state)
			switch {
			case err == nil:
			case vfs.IsNoSpace(err) || vfs.IsHarmed(err):
				l.store.log.Warn("no producer snapshot could be written", "partition", l.part.String(), "err", err)
				m.snapshotted = false
			default:
				return m, err
			}
		}
	}
	if sync {
		if err := l.syncFiles(); err != nil {
			return m, err
		}
	}
	m.unsynced = l.unsynced.version
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next == 0 && l.applied == 0 && len(l.segs) == 0 {
		return logMark{}, nil // nothing was ever kept
	}
	if m.snapshotted {
		l.addSnaps(ref)
	}
	l.applied = max(l.applied, cut)
	kept := l.inSegments()
	m.state, m.snaps = appendState(nil, l.part, &kept), kept.snaps
	return m, nil
}

// checkpointed hears that a mark is kept, and durable with all it says.
func (l *Log) checkpointed(m logMark) {
	if m.state == nil {
		return
	}
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	if l.unsynced.version == m.unsynced {
		l.synced()
	}
	l.mu.Lock()
	l.kept = m.changes
	l.mu.Unlock()
	if m.snapshotted {
		l.dropSnapshots(m.snaps)
	}
}

// waiter is a journal waiter that somebody waits for.
type waiter chan error

func (w waiter) Done(_ journal.Position, err error) { w <- err }

// posWaiter also hears where the entry ended.
type posWaiter struct {
	waiter
	end journal.Position
}

func (w *posWaiter) Done(end journal.Position, err error) {
	w.end = end
	w.waiter <- err
}

// appendEntry keeps an entry and waits until it is durable.
func (s *Store) appendEntry(ctx context.Context, t journal.Type, payload []byte) error {
	w := make(waiter, 1)
	if err := s.journal.Append(journal.Entry{Type: t, Payload: payload, Durable: w}); err != nil {
		return err
	}
	return await(ctx, w)
}

// await waits for the journal's word. It comes in any case: when the journal
// ends, whoever waits is told.
func await(ctx context.Context, w waiter) error {
	select {
	case err := <-w:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

package storage

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"tidewire/broker/journal"
	"tidewire/internal/ident"
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
			continue
		case ctx.Err() != nil:
			return nil // the last one is made by Run
		case !lacksSpace(err):
			return fmt.Errorf("checkpoint: %w", err)
		}
		s.log.Warn("no checkpoint for lack of space; it will be tried again", "err", err)
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
	cut, bytes := s.journal.Done(), s.journal.Bytes()
	logs := s.allLogs()
	marks := make([]logMark, len(logs))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(checkpointers)
	for i, l := range logs {
		if gctx.Err() != nil {
			break
		}
		g.Go(func() (err error) {
			if marks[i], err = l.checkpoint(cut.At); err != nil {
				return fmt.Errorf("%s: %w", l.part, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := s.syncDirs(); err != nil {
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
	for i, l := range logs {
		if marks[i].snapshotted {
			l.flushMu.Lock()
			l.dropSnapshots()
			l.flushMu.Unlock()
		}
	}
	return nil
}

// checkpointers is how many logs are synced at once: a file system does many
// syncs in little more than the time of one.
const checkpointers = 16

// logMark is a log's part of a checkpoint.
type logMark struct {
	state       []byte // encoded; nil: the log never kept anything
	snapshotted bool
}

// checkpoint brings the log's files up to the cut and tells its state.
func (l *Log) checkpoint(cut journal.Position) (mark logMark, err error) {
	l.mu.Lock()
	changed := l.changed
	l.mu.Unlock()
	var at ident.Offset
	var producers []byte
	var snapshotted bool
	if changed {
		at, producers, snapshotted = l.takeSnapshot() // before flushMu: its owner has locks of its own
	}
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	if l.isDeleted() { // since it was listed: its folder is gone, and nothing of it is to be kept
		return mark, nil
	}
	if err := l.flushLocked(); err != nil {
		return mark, err
	}
	var ref snapshotRef
	if changed {
		l.persistIndex()
		if snapshotted {
			ref, err = l.writeSnapshot(at, producers)
			switch {
			case err != nil && !lacksSpace(err):
				return mark, err
			case err != nil:
				l.store.log.Warn("no producer snapshot for lack of space", "partition", l.part.String(), "err", err)
				snapshotted = false
			}
		}
	}
	if err := l.syncSegments(); err != nil {
		return mark, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next == 0 && l.applied == 0 && len(l.segs) == 0 {
		return mark, nil // nothing was ever kept
	}
	if snapshotted && ref.at >= l.start && ref.at <= l.next {
		l.addSnap(ref)
	}
	l.applied = max(l.applied, cut)
	l.changed = len(l.tail) > 0
	return logMark{appendState(nil, l.part, &l.state), snapshotted}, nil
}

// syncLater notes a folder whose entries the next checkpoint makes durable.
func (s *Store) syncLater(dir string) {
	s.dirsMu.Lock()
	defer s.dirsMu.Unlock()
	s.dirs[dir] = true
}

func (s *Store) syncDirs() error {
	s.dirsMu.Lock()
	dirs := s.dirs
	s.dirs = map[string]bool{}
	s.dirsMu.Unlock()
	for dir := range dirs {
		// A folder that was deleted meanwhile has nothing left to keep; whoever
		// deleted it made that durable.
		if err := ignoreMissing(s.cfg.FS.SyncDir(dir)); err != nil {
			return fmt.Errorf("sync %s: %w", dir, &syncError{err})
		}
	}
	return nil
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

package consensus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

// errFull says that the disk had no room for an entry: it was not kept.
var errFull = errors.New("the disk that holds the coordinator's log is full")

var errStopped = errors.New("the coordinator's store is closed")

// backing is what store wraps: raft-boltdb, or a test's.
type backing interface {
	raft.LogStore
	Set(key, val []byte) error
	Get(key []byte) ([]byte, error)
}

// store stands between raft and raft-boltdb. It seals what goes in, checks what
// comes out, keeps the mark, and sorts errors: no space refuses, anything else
// is told to fail and ends the process. raft itself would only step down after a
// failed write and soon lead again on top of it.
type store struct {
	backing
	mark     *mark
	fail     func(error)
	stopped  chan struct{} // closed when nothing may be written any more
	stopOnce sync.Once
	busy     atomic.Int64 // when the write under way began, ns since 1970; 0: none
	// lacking is when entries first found no room, ns since 1970; 0: the last ones did.
	lacking atomic.Int64
	// cut is set between a cut of the log's end and the next entries: raft takes
	// no note of a cut until those are there. raft writes from one goroutine.
	cut bool
	// latest is the entry that was kept last: an idle leader asks for nothing else, some
	// fifteen times a second for each follower. nil: not known.
	latest atomic.Pointer[raft.Log]
}

func newStore(b backing, m *mark, fail func(error)) *store {
	return &store{backing: b, mark: m, fail: fail, stopped: make(chan struct{})}
}

// stop refuses every write from now on.
func (s *store) stop() { s.stopOnce.Do(func() { close(s.stopped) }) }

// stalled is how long the write under way has taken so far.
func (s *store) stalled(now time.Time) time.Duration {
	return since(&s.busy, now)
}

// lacks is for how long there has been no room for entries: what they say is not known
// here.
func (s *store) lacks(now time.Time) time.Duration { return since(&s.lacking, now) }

func since(at *atomic.Int64, now time.Time) time.Duration {
	began := at.Load()
	if began == 0 {
		return 0
	}
	return now.Sub(time.Unix(0, began))
}

func (s *store) write(do func() error) error {
	select {
	case <-s.stopped:
		return errStopped
	default:
	}
	s.busy.Store(time.Now().UnixNano())
	defer s.busy.Store(0)
	return do()
}

func (s *store) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

func (s *store) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	out := make([]*raft.Log, len(logs))
	for i, l := range logs {
		out[i] = sealed(l)
	}
	err := s.write(func() error { return s.backing.StoreLogs(out) })
	switch {
	case err == nil:
		s.cut = false
		s.lacking.Store(0)
	case errors.Is(err, errStopped):
		return err
	case isFull(err) && !s.cut:
		s.lacking.CompareAndSwap(0, time.Now().UnixNano())
		return fmt.Errorf("%w: %w", errFull, err)
	default:
		return s.failed("store entries", err)
	}
	last := *logs[len(logs)-1]
	if err := s.mark.set(last.Index); err != nil && !isFull(err) {
		return s.failed("store entries", err)
	}
	s.latest.Store(&last)
	return nil
}

// DeleteRange drops compacted entries from the front, or a follower's
// entries that its leader does not have from the end.
func (s *store) DeleteRange(first, last uint64) error {
	s.latest.Store(nil)
	tail := last >= s.mark.get()
	if tail {
		// The mark goes down first: between the two it only demands less.
		if err := s.mark.set(first - 1); err != nil {
			return s.failed("cut entries", err)
		}
	}
	err := s.write(func() error { return s.backing.DeleteRange(first, last) })
	if err == nil && tail {
		s.cut = true
	}
	if err == nil || errors.Is(err, errStopped) || isFull(err) && !tail {
		return err // compaction is tried again after the next snapshot
	}
	return s.failed("cut entries", err)
}

// IsMonotonic asks raft to drop its log when a snapshot of its leader takes its
// place, instead of going on behind a hole.
func (s *store) IsMonotonic() bool { return true }

// finishInstall drops a log that a snapshot of the leader was to replace, where the
// node ended between the two.
func (s *store) finishInstall(r Report) error {
	if r.Last == 0 || r.Snapshot <= r.Last {
		return nil
	}
	err := s.DeleteRange(r.First, r.Last)
	s.cut = false // raft has not begun: it finds the log as it is now
	return err
}

func (s *store) GetLog(index uint64, l *raft.Log) error {
	if latest := s.latest.Load(); latest != nil && latest.Index == index {
		*l = *latest
		return nil
	}
	if err := s.backing.GetLog(index, l); err != nil {
		if errors.Is(err, raft.ErrLogNotFound) {
			return err
		}
		return s.failed("read entry", err)
	}
	if err := checkSeal(index, l); err != nil {
		return s.failed("read entry", err)
	}
	return nil
}

// Set keeps a value of raft's own: term, vote, latest snapshot. raft panics
// if a term cannot be saved, so a full disk is waited for: the node takes no part in
// elections meanwhile, which is all it could do anyway.
func (s *store) Set(key, value []byte) error {
	for {
		err := s.write(func() error { return s.backing.Set(key, sealValue(key, value)) })
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errStopped):
			// Shutting down: the transport is closed, so nobody ever hears of a term
			// that was not saved.
			return nil
		case !isFull(err):
			return s.failed("save "+string(key), err)
		}
		again := time.NewTimer(fullRetry)
		select {
		case <-again.C:
		case <-s.stopped:
			again.Stop()
		}
	}
}

const fullRetry = 100 * time.Millisecond

func (s *store) Get(key []byte) ([]byte, error) {
	b, err := s.backing.Get(key)
	if err != nil {
		if err.Error() == errNotFound.Error() {
			return nil, errNotFound
		}
		return nil, s.failed("read "+string(key), err)
	}
	v, err := unsealValue(key, b)
	if err != nil {
		return nil, s.failed("read "+string(key), err)
	}
	return v, nil
}

func (s *store) SetUint64(key []byte, v uint64) error {
	return s.Set(key, binary.BigEndian.AppendUint64(nil, v))
}

func (s *store) GetUint64(key []byte) (uint64, error) {
	b, err := s.Get(key)
	if err != nil {
		return 0, err
	}
	if len(b) != 8 {
		return 0, s.failed("read "+string(key), fmt.Errorf("%d bytes are no number", len(b)))
	}
	return binary.BigEndian.Uint64(b), nil
}

func (s *store) failed(doing string, err error) error {
	err = fmt.Errorf("%s: %w", doing, err)
	s.fail(err)
	return err
}

// isFull reports a write that found no space. It must be the write itself: a
// full disk reported by fsync has lost pages that were taken before. bbolt passes
// on the errors of its file writes as they are, those of fsync without a path.
func isFull(err error) bool {
	var p *os.PathError
	return errors.As(err, &p) && p.Op == "write" &&
		(errors.Is(p.Err, syscall.ENOSPC) || errors.Is(p.Err, syscall.EDQUOT))
}

package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"tidewire/broker/journal"
	"tidewire/internal/ident"
	"tidewire/internal/vfs"
)

// Store is one data folder: the logs of all its partitions and the journal in
// front of them.
type Store struct {
	cfg      Config
	log      *slog.Logger
	meta     meta
	lock     io.Closer
	whole    vfs.Whole // nil where that cannot be synced at once
	journal  *journal.Journal
	rounds   journal.Rounds // who hears of its commits, if anybody
	files    *fileCache
	indexes  *indexCache
	metrics  *metrics
	disk     disk
	buffers  sync.Pool // of *[]byte, for flushing
	readOnly error     // the journal is corrupt: nothing is written any more
	next     uuid.UUID // the folder's id once it is renewed
	renewed  bool      // it was, since it was opened

	checkpointed bool // a checkpoint was found at the start
	torn         bool // and a torn end of the journal

	mu        sync.Mutex
	logs      map[ident.Partition]*Log
	gone      map[ident.Partition]fate // taken out; the folder may be there still
	lingering []ident.Partition        // of them, those whose folder could not be put away yet

	unflushed atomic.Int64 // bytes in tails
	flushWait passing      // what the last flush lacked
	checkWait passing      // what the last checkpoint lacked
	keepWait  passing      // what retention lacks
	flushKick chan struct{}
	dirtyMu   sync.Mutex
	dirty     map[*Log]time.Time // with something to flush, since when

	checkMu   sync.Mutex // one checkpoint at a time
	checkKick chan struct{}
	checked   atomic.Int64 // the journal's bytes at the last checkpoint
	dirsMu    sync.Mutex
	dirs      map[string]bool // folders with entries that are not durable
	owed      atomic.Bool     // the next checkpoint has to sync all
	uncounted atomic.Bool     // the state on the disk is of the format that did not count voids

	damageNews chan struct{} // cap 1: Damaged has something that nobody was told

	failOnce sync.Once
	failed   chan struct{} // closed when the disk failed
	failure  error         // set before
}

// Run does the store's work until ctx ends; then it writes and syncs
// everything, makes a checkpoint and closes. Stop appending first: what comes
// after that is refused. An error means that the disk failed: nothing was
// acknowledged after it, and the process has to end, because what its page
// cache says is not what the disk says.
func (s *Store) Run(ctx context.Context) error {
	if s.readOnly != nil {
		<-ctx.Done()
		return s.close(nil)
	}
	// The journal outlives the others: it keeps the last checkpoint.
	jctx, stopJournal := context.WithCancel(context.WithoutCancel(ctx))
	defer stopJournal()
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.journal.Run(jctx) })
	for _, loop := range []func(context.Context) error{s.flushLoop, s.checkpointLoop, s.scrubLoop} {
		g.Go(func() error {
			err := loop(gctx)
			if err != nil {
				s.fail(err) // at once: nothing is acknowledged any more
			}
			return err
		})
	}
	g.Go(func() error {
		select {
		case <-s.failed:
			return s.failure
		case <-gctx.Done():
		}
		defer stopJournal()
		if ctx.Err() == nil {
			return nil // a loop failed: the state is not to be trusted
		}
		return s.lastCheckpoint(jctx)
	})
	// Whatever fails first ends the acknowledgements.
	g.Go(func() error {
		<-gctx.Done()
		if ctx.Err() == nil {
			s.fail(context.Cause(gctx))
			stopJournal()
		}
		return nil
	})
	return s.close(g.Wait())
}

// lastCheckpoint makes the next start quick. Without it nothing is lost, so the
// end does not wait for it at any price.
func (s *Store) lastCheckpoint(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.LastCheckpoint)
	defer cancel()
	err := s.checkpoint(ctx)
	if err != nil && (passes(err) || ctx.Err() != nil && errors.Is(err, ctx.Err())) {
		s.log.Warn("no checkpoint at the end; the next start replays the journal", "err", err)
		return nil
	}
	return err
}

func (s *Store) close(err error) error {
	s.files.close()
	select {
	case <-s.failed:
		if !errors.Is(err, s.failure) {
			err = errors.Join(err, s.failure)
		}
	default:
	}
	if s.whole != nil {
		err = errors.Join(err, s.whole.Close())
	}
	return errors.Join(err, s.lock.Close())
}

// fail ends the store: a disk that failed once is not asked again.
func (s *Store) fail(err error) {
	s.failOnce.Do(func() {
		s.failure = err
		s.log.Error("the data folder failed; nothing is acknowledged any more", "err", err)
		if s.journal != nil {
			s.journal.Fail(err)
		}
		close(s.failed)
	})
}

// waits sleeps for what may come back, and says whether to try again.
func (s *Store) waits() bool {
	select {
	case <-time.After(s.cfg.RetrySpace):
		return true
	case <-s.failed:
		return false
	}
}

// ReadOnly says why nothing can be written, if so: the journal is corrupt. What
// can be proven is still served.
func (s *Store) ReadOnly() error { return s.readOnly }

// Found lists the partitions that have a log here, in order.
func (s *Store) Found() []ident.Partition {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]ident.Partition, 0, len(s.logs))
	for p, l := range s.logs {
		if l.Any() {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, comparePartitions)
	return all
}

// Damaged lists the partitions whose log is known to be damaged, in order: what the
// start found, and since then what a read, a checkpoint or the scrub met. In a folder
// whose journal is corrupt that is every partition that was asked for.
func (s *Store) Damaged() []ident.Partition {
	var all []ident.Partition
	for _, l := range s.allLogs() {
		if l.Damage() != nil {
			all = append(all, l.part)
		}
	}
	slices.SortFunc(all, comparePartitions)
	return all
}

// DamageNews gives a value when damage was found that was not known before, by the
// start as well: look at Damaged then. It is for one reader.
func (s *Store) DamageNews() <-chan struct{} { return s.damageNews }

// damageFound never blocks.
func (s *Store) damageFound() {
	select {
	case s.damageNews <- struct{}{}:
	default:
	}
}

// Any says whether the log ever kept something.
func (l *Log) Any() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next > 0 || len(l.tail) > 0 || len(l.segs) > 0 || l.damage != nil
}

// Log gives a partition's log; one that has no data yet costs a little memory.
func (s *Store) Log(p ident.Partition, cfg LogConfig) (*Log, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, out := s.gone[p]; out {
		return nil, fmt.Errorf("partition %s was deleted", p)
	}
	l := s.logs[p]
	if l == nil {
		l = s.newLog(p)
		l.unborn = true
		if s.readOnly != nil { // it may have been in what the journal lost
			l.damage = &Damage{File: journalDir(s.cfg.Dir), Reason: s.readOnly.Error()}
		}
		s.logs[p] = l
	}
	l.Configure(cfg)
	return l, nil
}

func (s *Store) newLog(p ident.Partition) *Log {
	return &Log{
		store: s, part: p, dir: partitionDir(s.cfg.Dir, p), cfg: LogConfig{}.withDefaults(),
		index: indexer{every: s.cfg.IndexBytes}, lookWall: time.Now().Round(0), lookMono: time.Since(s.disk.began),
	}
}

func (s *Store) allLogs() []*Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	logs := make([]*Log, 0, len(s.logs))
	for _, l := range s.logs {
		logs = append(logs, l)
	}
	return logs
}

// leaving is what was taken out and may have a folder still.
func (s *Store) leaving() map[ident.Partition]fate {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.gone)
}

// Hear names who hears of the journal's commits from now on, also of the one that a
// renewal begins. Call it before either, and before Run.
func (s *Store) Hear(r journal.Rounds) {
	s.rounds = r
	if s.journal != nil {
		s.journal.Hear(r)
	}
}

// Waiting says that what was appended waits for the journal's next commit.
func (s *Store) Waiting() bool { return s.journal != nil && s.journal.Waiting() }

// Telling says that what came of a commit is being told.
func (s *Store) Telling() bool { return s.journal != nil && s.journal.Telling() }

// committed hears of every commit of the journal.
func (s *Store) committed(c journal.Commit) {
	s.metrics.committed(c)
	if s.journal.Bytes()-s.checked.Load() > s.cfg.CheckpointBytes {
		s.kickCheckpoint()
	}
}

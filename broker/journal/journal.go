package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/pace"
	"tidewire/internal/vfs"
)

// Config of a journal. A zero field means its default.
type Config struct {
	FS         vfs.FS          // required
	Dir        string          // required; exists
	Storage    ident.StorageID // required: the data folder's id
	FileBytes  int64           // size of a file; 32 MiB
	FirstBytes int64           // of the file a start needs at once if none was prepared; min(FileBytes, 1 MiB)
	GroupBytes int             // most that one write and fsync takes; 8 MiB
	FrameBytes int             // a frame is closed past this; 4 MiB
	QueueBytes int64           // most that may wait to be committed, on a quick disk; 64 MiB
	IdleMark   time.Duration   // silence after which a mark covers the last frame; 500ms
	RetrySpace time.Duration   // how often to try again without space or open files; 1s
	Logger     *slog.Logger
	Observe    func(Commit) // called after every commit; may be nil
}

func (c Config) withDefaults() Config {
	c.FileBytes = cmp.Or(c.FileBytes, 32<<20)
	c.FirstBytes = cmp.Or(c.FirstBytes, min(c.FileBytes, 1<<20))
	c.GroupBytes = cmp.Or(c.GroupBytes, 8<<20)
	c.FrameBytes = cmp.Or(c.FrameBytes, 4<<20)
	c.QueueBytes = cmp.Or(c.QueueBytes, 64<<20)
	c.IdleMark = cmp.Or(c.IdleMark, 500*time.Millisecond)
	c.RetrySpace = cmp.Or(c.RetrySpace, time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.FS == nil || c.Dir == "" {
		errs = append(errs, errors.New("file system and folder are required"))
	}
	for _, n := range []int64{c.FileBytes, c.FirstBytes} {
		if n < MinFileBytes || n > maxFileBytes {
			errs = append(errs, fmt.Errorf("a file of %d bytes: from %d to %d are allowed", n, MinFileBytes, int64(maxFileBytes)))
		}
	}
	return errors.Join(errs...)
}

// Commit is what one write and one fsync took.
type Commit struct {
	Entries int
	Bytes   int
	Sync    time.Duration
}

// Waiter is told about an entry. It is called on the journal's own goroutine,
// in the order of the entries, and must be quick.
type Waiter interface {
	Done(end Position, err error)
}

// Rounds hears of the journal's commits, on its own goroutine: for who joins what comes of
// the entries of one. It must be quick, and wait for nobody.
type Rounds interface {
	// Taken: entries were taken off the queue and are about to be written, so many bytes.
	Taken(bytes int)
	// Told: waiters of a commit were told.
	Told()
}

// Entry is one thing to keep. Payload must not change any more.
type Entry struct {
	Type    Type
	Payload []byte
	Durable Waiter // may be nil; called once: it is on the disk, or err
	Written Waiter // may be nil; called once before Durable unless there is an error: it is in the page cache

	since time.Duration // the journal's age when the entry was queued
}

func (e Entry) bytes() int { return entryHead + len(e.Payload) }

// Journal takes entries in and keeps them. See the package comment.
type Journal struct {
	cfg  Config
	wake chan struct{} // cap 1: the queue is not empty
	born time.Time

	mu     sync.Mutex
	queue  []Entry // bounded by admission: see Room
	queued int64   // bytes of the entries that are not on the disk yet
	pace   *pace.Pace
	left   int64 // bytes free in the current file
	lack   error // of space or open files: why the next file cannot be prepared yet
	err    error // why nothing is taken any more
	done   Cut   // all before it is durable and its waiters were told
	bytes  int64 // committed since Open, and found by it

	rounds  atomic.Pointer[Rounds]
	telling atomic.Bool // waiters are being told

	files fileSet
	commit
}

// Open makes a journal that goes on where a scan ended. It syncs what the scan
// found, so that all of it is durable from here on. The scan must not be corrupt.
func Open(cfg Config, s *Scan) (*Journal, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("journal config: %w", err)
	}
	if s.Corrupt != nil {
		return nil, s.Corrupt
	}
	j := &Journal{
		cfg: cfg, wake: make(chan struct{}, 1), born: time.Now(), done: s.end,
		pace: pace.New(pace.Bounds{Least: cfg.QueueBytes / 16, Start: cfg.QueueBytes / 8, Most: cfg.QueueBytes, Wait: queueWait}),
	}
	j.files.init(cfg, s)
	for _, f := range s.files {
		if err := syncFile(cfg.FS, f.name); err != nil {
			return nil, fmt.Errorf("sync what was found: %w", err)
		}
	}
	// A file may have got its name just before the former life ended.
	if err := cfg.FS.SyncDir(cfg.Dir); err != nil {
		return nil, fmt.Errorf("sync the journal's folder: %w", err)
	}
	for _, l := range s.chain {
		j.bytes += l.frame.bytes
	}
	j.commit = commit{seq: s.end.Frame, durable: s.end.Frame, unmarked: s.end.Frame > s.mark}
	if f, err := j.files.prepared(s); err != nil {
		return nil, err
	} else if f != nil {
		j.use(f)
	}
	return j, nil
}

func syncFile(fsys vfs.FS, name string) error {
	f, err := fsys.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Run commits what is appended until ctx ends; then it commits what is queued,
// leaves a mark and returns. An error means that the disk failed: nothing was
// acknowledged after it, and the process must end.
func (j *Journal) Run(ctx context.Context) error {
	first := j.cur == nil
	g, ctx := errgroup.WithContext(ctx)
	// Files are prepared until the last commit is done.
	prepareCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	g.Go(func() error { defer stop(); return j.commitLoop(ctx) })
	g.Go(func() error { return j.prepareLoop(prepareCtx, first) })
	err := g.Wait()
	if err == nil {
		err = errStopped
	}
	j.fail(err)
	j.failQueue(nil)
	if j.cur != nil {
		err = errors.Join(err, j.cur.file.Close())
	}
	if errors.Is(err, errStopped) {
		return nil
	}
	return err
}

var errStopped = errors.New("the journal was closed")

// Append queues an entry. An error says that it was not taken.
func (j *Journal) Append(e Entry) error {
	if int64(e.bytes())+2*frameHead > j.cfg.FileBytes-firstFrame {
		return fmt.Errorf("an entry of %d bytes does not fit into a journal file of %d", e.bytes(), j.cfg.FileBytes)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return &fault.Error{Kind: fault.LeaderUnavailable, Op: "journal.append", Err: j.err}
	}
	e.since = time.Since(j.born)
	j.queue = append(j.queue, e)
	j.queued += int64(e.bytes())
	if len(j.queue) == 1 {
		select {
		case j.wake <- struct{}{}:
		default:
		}
	}
	return nil
}

// Hear names who hears of commits from now on.
func (j *Journal) Hear(r Rounds) { j.rounds.Store(&r) }

// Waiting says that entries wait on the queue: Taken is called once they were taken. Where
// nobody hears of that, nobody can count on it.
func (j *Journal) Waiting() bool {
	if j.rounds.Load() == nil {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.queue) > 0 && j.err == nil
}

// Telling says that waiters are being told: Told is called after it.
func (j *Journal) Telling() bool { return j.telling.Load() && j.rounds.Load() != nil }

// queueWait is how long an entry should wait for the disk at most: much less
// than whoever appended it waits for an answer.
const queueWait = time.Second

// Room says whether n more bytes may be queued: not if that would have to
// wait for space, and not if what waits already takes the disk too long.
func (j *Journal) Room(n int) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.err != nil:
		return &fault.Error{Kind: fault.LeaderUnavailable, Op: "journal.append", Err: j.err}
	case j.lack != nil && (j.queued+int64(n))*2+controlReserve(j.cfg.FileBytes) > j.left:
		if vfs.IsNoFiles(j.lack) {
			return fault.New(fault.Throttled, "the node has no open files left for the next journal file").After(j.cfg.RetrySpace)
		}
		return fault.New(fault.DiskFull, "the disk has no space for the next journal file. Nothing was kept; free space or add disk, and it heals by itself").After(j.cfg.RetrySpace)
	case !j.pace.Admits(j.queued, int64(n)):
		return fault.New(fault.Throttled, "%d bytes wait for the disk, and it takes no more than %d in good time", j.queued, j.pace.Limit()).After(100 * time.Millisecond)
	}
	return nil
}

// controlReserve is kept in the last file for entries that free space: log
// starts, deletions and the checkpoint after them.
func controlReserve(fileBytes int64) int64 { return min(fileBytes/8, 1<<20) }

// Done is the boundary before which everything is durable and every waiter has
// been told.
func (j *Journal) Done() Cut {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.done
}

// Bytes counts what was committed since Open and what was found by it.
func (j *Journal) Bytes() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.bytes
}

// Fail ends the journal because the disk failed elsewhere in the data folder:
// nothing is acknowledged any more.
func (j *Journal) Fail(err error) { j.fail(err) }

func (j *Journal) failed() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// fail makes the journal refuse everything from now on; the first reason stays.
func (j *Journal) fail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err == nil {
		j.err = err
	}
}

// failQueue tells everything that waits that nobody knows.
func (j *Journal) failQueue(taken []Entry) {
	j.mu.Lock()
	all := append(taken, j.queue...)
	j.queue, j.queued = nil, 0
	err := &fault.Error{Kind: fault.UnknownOutcome, Op: "journal.commit", Err: j.err}
	j.mu.Unlock()
	for _, e := range all {
		if e.Written != nil {
			e.Written.Done(0, err)
		}
		if e.Durable != nil {
			e.Durable.Done(0, err)
		}
	}
}

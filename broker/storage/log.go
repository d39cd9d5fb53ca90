package storage

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"tidewire/broker/journal"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/vfs"
)

// Log is the log of one partition. Its methods may be called concurrently, but
// for Append, TruncateTo, Restart, SetStart and Retain, which are its one owner's.
type Log struct {
	store *Store
	part  ident.Partition
	dir   string

	// flushMu is held by whoever changes segment files: flush, checkpoint,
	// retention, truncation, deletion. It is taken before mu and may be held
	// over I/O; nothing that a client waits for takes it.
	flushMu  sync.Mutex
	dirMade  bool
	dirNew   bool // and may not outlive a power cut before the next checkpoint
	unsynced unsynced
	indexed  int // entries in the active segment's index file

	mu sync.Mutex
	state
	index       indexer // of the active segment; its entries are those not in the file yet. Changed under both locks
	cuts        int     // truncations so far
	cfg         LogConfig
	tail        []*item // batches from flushed on, in order. Elements are never overwritten: readers hold the slice
	durableTail int     // so many of them are durable in the journal
	tailBytes   int64
	readyBytes  int64  // of the durable ones: what the flusher may take
	waiting     bool   // the flusher knows of them
	changes     uint64 // counts what a checkpoint keeps
	kept        uint64 // the count as of the last checkpoint
	deleted     bool
	unborn      bool // nothing of it is in the journal yet
	damage      *Damage
	snapshotter func() (ident.Offset, []byte)
	lookWall    time.Time // of the last look of retention at the clock
	lookMono    time.Duration
}

// item is a batch that is not in a segment yet.
type item struct {
	log     *Log
	batch   record.Batch
	head    record.Header
	at      record.Position  // where it stands
	end     journal.Position // once durable
	cut     bool             // truncated away: no part of the log any more
	durable func(error)
	written func(error)
}

// Damage says from where on a log cannot be trusted.
type Damage struct {
	Offset ident.Offset
	File   string
	Pos    int64
	Reason string
}

func (d *Damage) Error() string {
	return fmt.Sprintf("damaged from offset %d on (%s, byte %d: %s); `tidewire log verify --data %s` tells more", d.Offset, d.File, d.Pos, d.Reason, vfs.Home(d.File))
}

func (l *Log) fault(kind fault.Kind, op string, err error) *fault.Error {
	return &fault.Error{Kind: kind, Op: "storage." + op, Err: fmt.Errorf("partition %s: %w", l.part, err)}
}

// damaged is what a client hears of damage. Where the file is stands in the
// node's own log.
func (l *Log) damaged(op string, d *Damage) *fault.Error {
	return l.fault(fault.LeaderUnavailable, op,
		fmt.Errorf("it is damaged from offset %d on (%s) and takes nothing new; the log of the node names the file, and `tidewire log verify` tells more", d.Offset, d.Reason)).Lasts()
}

func (l *Log) path(base ident.Offset, suffix string) string {
	return filepath.Join(l.dir, offsetName(base, suffix))
}

// Partition names the log.
func (l *Log) Partition() ident.Partition { return l.part }

// Configure sets retention and segment sizes from now on.
func (l *Log) Configure(cfg LogConfig) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cfg = cfg.withDefaults()
}

// Append keeps a batch. Its header is filled in and sealed: it begins at End,
// and neither epoch nor timestamp falls. From then on nobody changes its bytes.
// durable (may be nil) is called once, when the batch is on the disk or nobody can say any
// more (UnknownOutcome); written (may be nil, too) is called before that, once
// the batch is in the page cache. Both are called from the journal's goroutine
// and must be quick. Whether a batch can be taken is asked with Admit before
// offsets are given out; an error here says that it is not part of the log all
// the same, and that neither is called.
func (l *Log) Append(b record.Batch, written, durable func(error)) error {
	it := &item{log: l, batch: b, head: b.Header(), written: written, durable: durable}
	e := journal.Entry{Type: entryBatch, Payload: b, Durable: it}
	if written != nil {
		e.Written = (*writtenItem)(it)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.refusalLocked("append", true); err != nil {
		return err
	}
	l.checkOrderLocked(it.head)
	if err := l.bornLocked(); err != nil {
		return err
	}
	if err := l.store.journal.Append(e); err != nil {
		return err
	}
	it.at = l.nextPos()
	l.tail = append(l.tail, it)
	l.tailBytes += int64(len(b))
	l.extend(it.head)
	l.store.unflushed.Add(int64(len(b)))
	return nil
}

// after is the position behind it.
func (it *item) after() record.Position { return it.at.After(it.head) }

// checkOrderLocked keeps the invariant that a log is contiguous and that epoch
// and time never fall in it. Its owner assigns them: a violation is a bug.
func (l *Log) checkOrderLocked(h record.Header) {
	if h.Partition != l.part || h.Base != l.next || h.Epoch < l.epoch || h.Timestamp < l.lastMs || h.Length < record.HeaderBytes {
		panic(fmt.Sprintf("invariant: batches of %s are contiguous with epoch and time never falling: offset %d, epoch %d, time %d follow offset %d, epoch %d, time %d",
			h.Partition, h.Base, h.Epoch, h.Timestamp, l.next, l.epoch, l.lastMs))
	}
}

// Done is called by the journal: the batch is durable, or err.
func (it *item) Done(end journal.Position, err error) {
	if err == nil {
		l := it.log
		l.mu.Lock()
		it.end = end
		kick := false
		if !it.cut {
			l.durableTail++
			l.readyBytes += int64(len(it.batch))
			kick = l.noteReadyLocked()
		}
		l.mu.Unlock()
		if kick {
			l.store.flushSoon(l, false)
		}
		l.store.metrics.appended(len(it.batch))
	}
	if it.durable != nil {
		it.durable(err)
	}
}

// noteReadyLocked says whether the flusher has to hear of the log.
func (l *Log) noteReadyLocked() bool {
	l.changes++
	first := !l.waiting
	l.waiting = true
	return first || l.readyBytes >= int64(l.store.cfg.FlushBytes)
}

// writtenItem hears the journal's earlier news for an item.
type writtenItem item

func (w *writtenItem) Done(_ journal.Position, err error) { w.written(err) }

// refusalLocked says why the log takes no call that changes it.
func (l *Log) refusalLocked(op string, appending bool) error {
	switch {
	case l.deleted:
		return l.fault(fault.PartitionNotFound, op, fmt.Errorf("the log was deleted"))
	case l.store.readOnly != nil:
		return l.fault(fault.LeaderUnavailable, op, errors.New("the data folder is damaged and takes nothing new; the log of the node says where, and `tidewire log verify` tells more")).Lasts()
	case l.damage != nil && appending:
		return l.damaged(op, l.damage)
	}
	return nil
}

// isDeleted stays as it is while flushMu is held.
func (l *Log) isDeleted() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.deleted }

// Start is the first offset that is kept.
func (l *Log) Start() ident.Offset { return l.StartPosition().Offset }

// StartPosition is where the log begins: voids that stood at Start may be gone
// with what was below it.
func (l *Log) StartPosition() record.Position { l.mu.Lock(); defer l.mu.Unlock(); return l.startPos() }

// End is the offset that the next batch begins at.
func (l *Log) End() ident.Offset { return l.EndPosition().Offset }

// EndPosition is where the next batch will stand.
func (l *Log) EndPosition() record.Position { l.mu.Lock(); defer l.mu.Unlock(); return l.nextPos() }

// Durable is the end of what is on the disk.
func (l *Log) Durable() ident.Offset { return l.DurablePosition().Offset }

// DurablePosition is the end of what is on the disk.
func (l *Log) DurablePosition() record.Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.durableTail == 0 {
		return l.flushedPos()
	}
	return l.tail[l.durableTail-1].after()
}

// LastTimestamp is that of the last batch, in ms since 1970; 0 for a log that
// never had one.
func (l *Log) LastTimestamp() int64 { l.mu.Lock(); defer l.mu.Unlock(); return l.lastMs }

// LastEpoch is that of the last batch; 0 for a log without one.
func (l *Log) LastEpoch() ident.Epoch { l.mu.Lock(); defer l.mu.Unlock(); return l.epoch }

// EpochEnd is the largest epoch of the log that is not above e, and the offset
// at which it ended: the log's end if it is the last. Epoch 0 says that the log
// knows none so old; the offset is then where its first one begins.
func (l *Log) EpochEnd(e ident.Epoch) (ident.Epoch, ident.Offset) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, end := l.epochEnd(e)
	return last, end.Offset
}

// EpochEndPosition is the largest epoch of the log that is not above e, and the
// position where it ended: voids of a later one at the same offset lie behind it.
// Epoch 0 says that nothing of any epoch up to e is known here, and the position
// is then where the log starts: whoever has batches of those shares none that this
// log could give.
func (l *Log) EpochEndPosition(e ident.Epoch) (last ident.Epoch, end record.Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, end = l.epochEnd(e); last == 0 {
		end = l.startPos()
	}
	return last, end
}

// Bytes is what the log holds, in segments and in memory.
func (l *Log) Bytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state.bytes() + l.tailBytes
}

// Damage says from where on the log cannot be trusted; nil: nothing is known
// against it.
func (l *Log) Damage() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.damage == nil {
		return nil
	}
	return l.damaged("read", l.damage)
}

// setDamage remembers the lowest damaged place and reports it once.
func (l *Log) setDamage(d *Damage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.damage != nil && l.damage.Offset <= d.Offset {
		return
	}
	l.damage = d
	l.store.metrics.corruption.Inc()
	l.store.damageFound()
	l.store.log.Error("a log is damaged", "partition", l.part.String(), "offset", int64(d.Offset), "err", d.Error())
}

package journal

import (
	"context"
	"fmt"
	"time"

	"tidewire/internal/vfs"
)

// commit is the state of the commit loop, which alone touches it.
type commit struct {
	cur      *openFile
	off      int64  // where the next frame goes in cur
	seq      uint64 // of the next frame
	durable  uint64 // frames below it are durable
	unmarked bool   // the last frame holds entries that no mark covers yet
	buf      []byte
	ends     []Position
	taken    []Entry // taken off the queue, in order, not committed yet
	next     int     // taken[:next] is committed
}

func (j *Journal) commitLoop(ctx context.Context) error {
	for {
		if err := j.commitQueued(ctx); err != nil {
			j.fail(err)
			j.failQueue(j.taken[j.next:])
			j.taken, j.next = nil, 0
			return err
		}
		var idle <-chan time.Time
		if j.unmarked && j.cur != nil {
			idle = time.After(j.cfg.IdleMark)
		}
		select {
		case <-j.wake:
		case <-idle:
			if err := j.mark(); err != nil {
				j.fail(err)
				j.failQueue(nil)
				return err
			}
		case <-ctx.Done():
			// What was queued before the end is still kept.
			if err := j.commitQueued(ctx); err != nil {
				j.fail(err)
				j.failQueue(j.taken[j.next:])
				return err
			}
			return j.mark()
		}
	}
}

// commitQueued commits until the queue is empty.
func (j *Journal) commitQueued(ctx context.Context) error {
	for {
		if j.next == len(j.taken) {
			clear(j.taken)
			j.mu.Lock()
			j.taken, j.queue = j.queue, j.taken[:0]
			j.mu.Unlock()
			if j.next = 0; len(j.taken) == 0 {
				return nil
			}
			j.hearTaken()
		}
		n, err := j.group(ctx)
		if err != nil {
			return err
		}
		if err := j.writeGroup(ctx, j.taken[j.next:j.next+n]); err != nil {
			return err
		}
		j.next += n
	}
}

// group says how many of the taken entries go into one write: what fits into
// the current file, changing it if nothing does.
func (j *Journal) group(ctx context.Context) (int, error) {
	for {
		left := j.space()
		total, n := 0, 0
		for _, e := range j.taken[j.next:] {
			// Each entry may need a frame of its own.
			if total += e.bytes() + frameHead; n > 0 && total > j.cfg.GroupBytes || int64(total) > left {
				break
			}
			n++
		}
		if n > 0 {
			return n, nil
		}
		if need := int64(j.taken[j.next].bytes()); need+2*frameHead > j.cfg.FileBytes-firstFrame {
			panic(fmt.Sprintf("invariant: an entry of %d bytes fits into a journal file of %d", need, j.cfg.FileBytes))
		}
		if err := j.roll(ctx); err != nil {
			return 0, err
		}
	}
}

// space is what entries may take of the current file: a mark always fits
// behind them.
func (j *Journal) space() int64 {
	if j.cur == nil {
		return 0
	}
	return j.cur.head.size - j.off - frameHead
}

// roll goes on in the next file, waiting until it is prepared.
func (j *Journal) roll(ctx context.Context) error {
	next, err := j.files.take(ctx)
	if err != nil {
		return err
	}
	if j.cur != nil {
		if err := j.cur.file.Close(); err != nil {
			next.file.Close() //nolint:errcheck // the first error ends the journal
			return err
		}
		j.files.retire(j.cur)
	}
	j.use(next)
	return nil
}

func (j *Journal) use(f *openFile) {
	j.cur, j.off = f, firstFrame
	j.setLeft()
}

func (j *Journal) setLeft() {
	left := j.space()
	j.mu.Lock()
	j.left = left
	j.mu.Unlock()
}

// writeGroup is the commit: one write, one fsync, then everyone is told.
func (j *Journal) writeGroup(ctx context.Context, group []Entry) error {
	seq := j.encode(group)
	for {
		_, err := j.cur.file.WriteAt(j.buf, j.off)
		if err == nil {
			break
		}
		if !vfs.IsNoSpace(err) {
			return fmt.Errorf("write journal file %d: %w", j.cur.head.file, err)
		}
		// Only a file system that copies on write gets here; nothing is
		// promised yet, and the same bytes go to the same place later.
		if err := j.files.waitSpace(ctx, err); err != nil {
			return err
		}
	}
	j.tell(group, func(e *Entry) Waiter { return e.Written })
	start := time.Now()
	if err := j.cur.file.Sync(); err != nil {
		return fmt.Errorf("sync journal file %d: %w", j.cur.head.file, err)
	}
	took := time.Since(start)
	if err := j.failed(); err != nil {
		return err // the disk failed elsewhere meanwhile: acknowledge nothing
	}
	j.off += int64(len(j.buf))
	j.seq, j.durable, j.unmarked = seq, seq, len(group) > 0

	j.tell(group, func(e *Entry) Waiter { return e.Durable })
	var queued int64
	for _, e := range group {
		queued += int64(e.bytes())
	}
	j.mu.Lock()
	j.done = Cut{at(j.cur.head.file, j.off), seq}
	j.queued -= queued
	if len(group) > 0 {
		now := time.Now()
		j.pace.Taken(now, queued, now.Sub(j.born)-group[0].since)
	}
	j.bytes += int64(len(j.buf))
	j.left = j.space()
	j.mu.Unlock()
	if j.cfg.Observe != nil {
		j.cfg.Observe(Commit{len(group), len(j.buf), took})
	}
	if cap(j.buf) > 2*j.cfg.GroupBytes {
		j.buf = nil // one huge entry must not hold its memory for ever
	}
	return nil
}

// tell tells the waiters of a commit that wait for one thing. Whoever finds it telling
// counts on Told.
func (j *Journal) tell(group []Entry, waiter func(*Entry) Waiter) {
	telling := false
	for i := range group {
		w := waiter(&group[i])
		if w == nil {
			continue
		}
		if !telling {
			telling = true
			j.telling.Store(true)
		}
		w.Done(j.ends[i], nil)
	}
	if !telling {
		return
	}
	j.telling.Store(false)
	if r := j.rounds.Load(); r != nil {
		(*r).Told()
	}
}

func (j *Journal) hearTaken() {
	r := j.rounds.Load()
	if r == nil {
		return
	}
	bytes := 0
	for i := range j.taken {
		bytes += j.taken[i].bytes()
	}
	(*r).Taken(bytes)
}

// encode lays the group out as frames in buf and returns the sequence after
// the last of them. No entries make one empty frame: a mark.
func (j *Journal) encode(group []Entry) (seq uint64) {
	j.buf, j.ends, seq = j.buf[:0], j.ends[:0], j.seq
	for first := true; first || len(group) > 0; first = false {
		start, n := len(j.buf), 0
		j.buf = append(j.buf, make([]byte, frameHead)...)
		for _, e := range group {
			if n > 0 && len(j.buf)-start+e.bytes() > j.cfg.FrameBytes {
				break
			}
			j.buf = appendEntry(j.buf, e.Type, e.Payload)
			j.ends = append(j.ends, at(j.cur.head.file, j.off+int64(len(j.buf))))
			n++
		}
		seal(j.buf[start:], j.cur.head.salt, seq, j.durable, n)
		group = group[n:]
		seq++
	}
	return seq
}

// mark writes an empty frame if the last one is not covered by a mark yet.
func (j *Journal) mark() error {
	if !j.unmarked || j.cur == nil || j.cur.head.size-j.off < frameHead {
		j.unmarked = false
		return nil
	}
	// A lack of space cannot happen in a file that is filled ahead, and a mark
	// is no reason to wait: the context is over when the journal closes.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return j.writeGroup(ctx, nil)
}

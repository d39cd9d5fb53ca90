package publish

import (
	"sync"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

const (
	// batchBytes is where a waiting batch takes no more records.
	batchBytes = 1 << 20
	// batchRecords likewise.
	batchRecords = 8192
	// firstRetry and lastRetry bound the pause before a partition without a
	// leader is tried again.
	firstRetry = 2 * time.Millisecond
	lastRetry  = 100 * time.Millisecond
)

// waiter is one record under way. Its lane's lock guards answered and out.
type waiter struct {
	metrics   *metrics
	topic     string
	partition ident.Index
	deadline  time.Time
	bytes     int64
	refusal   error // the record is a void; this is the answer once it is kept
	none      bool  // acks=none: answered when taken in
	done      func(Result)
	answered  bool // done was called, or will be by whoever set this
	out       bool // told that nothing was kept: never to be sent (again)
}

func (w *waiter) finish(r Result) {
	r.Topic, r.Partition = w.topic, w.partition
	if r.Err == nil && w.refusal != nil {
		r.Err = w.refusal
	}
	w.metrics.result(r, w.bytes)
	w.done(r)
}

// batch is records that travel together. While it waits it has a builder;
// under way it has its sealed bytes.
type batch struct {
	acks    rpc.Acks
	begun   time.Time // when its first record came
	builder record.Builder
	sealed  record.Batch
	waiters []*waiter
	orphan  bool // a try found no leader: its time tells nothing of how quick leaders are
}

func (b *batch) takes(acks rpc.Acks, bytes int) bool {
	return (acks == b.acks || acks == rpc.AcksNone) && len(b.waiters) < batchRecords && b.builder.Bytes()+bytes <= batchBytes
}

// bytes is what the batch's records count at the gate.
func (b *batch) bytes() (n int64) {
	for _, w := range b.waiters {
		n += w.bytes
	}
	return n
}

// lane brings one partition's records to its leader, in order.
type lane struct {
	p   *Publisher
	ref ident.Partition

	mu       sync.Mutex
	waiting  []*batch // oldest first; only the last one still takes records
	underway *batch   // nil: none
	atLeader bool     // the batch under way may have reached a log
	retries  int      // of the batch under way
	refusal  error    // why its last try was not taken; nil: it was not refused yet
	expiry   *time.Timer
	expiryAt time.Time // when expiry fires, less the grain
	gone     bool      // given up; use the successor
}

// add puts a record into the lane; false where the lane is given up. The
// record was counted in by Publisher.lane, and is counted out here or when its
// batch has ended.
func (l *lane) add(req *Request, w *waiter) bool {
	l.mu.Lock()
	if l.gone {
		l.mu.Unlock()
		l.p.busy.Done()
		return false
	}
	acks := req.Acks
	last := len(l.waiting) - 1
	if last < 0 || !l.waiting[last].takes(acks, req.Record.Bytes()+framingBytes) {
		if acks == rpc.AcksNone {
			acks = rpc.AcksAll
		}
		l.waiting = append(l.waiting, &batch{acks: acks, begun: time.Now()})
		last++
	}
	b := l.waiting[last]
	if req.Void {
		b.builder.Void(req.Record.Producer, req.Record.Sequence)
	} else {
		b.builder.Add(&req.Record)
	}
	b.waiters = append(b.waiters, w)
	w.none = req.Acks == rpc.AcksNone
	w.answered = w.none
	l.armLocked(w.deadline)
	send := l.nextLocked()
	l.mu.Unlock()

	if w.none {
		w.finish(Result{Offset: -1})
	}
	l.send(send)
	return true
}

// nextLocked takes the oldest waiting batch, if nothing is under way.
func (l *lane) nextLocked() *batch {
	for l.underway == nil && len(l.waiting) > 0 {
		b := l.waiting[0]
		l.waiting[0] = nil
		l.waiting = l.waiting[1:]
		b.sealed = b.builder.Seal()
		b.builder = record.Builder{}
		l.retries = 0
		if l.dropLocked(b) {
			l.underway, l.atLeader = b, true
			return b
		}
	}
	return nil
}

// dropLocked takes the records out of a sealed batch that were told that
// nothing was kept. It is false when none is left.
func (l *lane) dropLocked(b *batch) bool {
	kept := make([]*waiter, 0, len(b.waiters))
	for _, w := range b.waiters {
		if !w.out {
			kept = append(kept, w)
		}
	}
	if len(kept) == len(b.waiters) {
		return true
	}
	all := b.waiters
	sealed, err := b.sealed.Filter(func(i int) record.Fate {
		if all[i].out {
			return record.Drop
		}
		return record.Keep
	})
	if err != nil {
		panic("publish: a batch sealed here must be readable: " + err.Error())
	}
	b.sealed, b.waiters = sealed, kept
	for _, w := range all {
		if w.out {
			l.p.settled(w.bytes)
		}
	}
	return len(kept) > 0
}

// send hands a batch to the leader. The answer may come before it returns, so
// batches that follow are sent by a loop and not by recursion.
func (l *lane) send(b *batch) {
	for b != nil {
		sent := b // the answer may come after the loop has gone on
		var (
			mu       sync.Mutex
			returned bool
			next     *batch
		)
		l.p.cfg.Leader.Append(rpc.Append{Partition: l.ref, Batch: sent.sealed, Acks: sent.acks}, func(a rpc.Appended) {
			n := l.answered(sent, a)
			mu.Lock()
			late := returned
			next = n
			mu.Unlock()
			if late {
				l.send(n)
			}
		})
		mu.Lock()
		returned = true
		b, next = next, nil
		mu.Unlock()
	}
}

// answered ends a batch, or sees to its next try. It returns the batch to send
// now.
func (l *lane) answered(b *batch, a rpc.Appended) *batch {
	if notTaken(a.Err) && l.retry(b, a.Err) {
		return nil
	}
	l.p.metrics.sent(b)
	if a.Err == nil && !b.orphan {
		l.p.gate.taken(b.bytes(), time.Since(b.begun))
	}
	l.mu.Lock()
	var calls []func()
	for i, w := range b.waiters {
		if w.answered {
			continue
		}
		w.answered = true
		r := Result{Err: a.Err}
		if a.Err == nil {
			k := a.Records[i]
			r = Result{Err: k.Err, Offset: k.Offset, Timestamp: k.Timestamp, Duplicate: k.Duplicate}
		}
		calls = append(calls, func() { w.finish(r) })
	}
	l.underway, l.atLeader, l.refusal = nil, false, nil
	next := l.nextLocked()
	l.mu.Unlock()

	for _, call := range calls {
		call()
	}
	for _, w := range b.waiters {
		l.p.settled(w.bytes)
	}
	if next == nil {
		l.giveUpIfGone()
	}
	return next
}

// notTaken reports an error that says that nothing was kept and that another
// try soon may find a leader, or one with less to do.
func notTaken(err error) bool {
	if fault.Lasting(err) {
		return false
	}
	return fault.Is(err, fault.LeaderUnavailable) || fault.Is(err, fault.Fenced) || fault.Is(err, fault.Throttled)
}

// retry keeps a batch that no leader took for another try a little later; it
// is false when nobody waits for it any more, or its topic is gone.
func (l *lane) retry(b *batch, cause error) bool {
	if !l.exists() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.atLeader, l.refusal = false, cause
	b.orphan = b.orphan || !fault.Is(cause, fault.Throttled)
	waits := false
	for _, w := range b.waiters {
		w.out = w.out || w.answered && !w.none
		waits = waits || !w.out
	}
	if !waits {
		return false
	}
	pause := min(firstRetry<<min(l.retries, 10), lastRetry)
	l.retries++
	time.AfterFunc(pause, func() { l.send(l.again(b)) })
	return true
}

// again makes a batch ready for its next try and returns the batch to send.
func (l *lane) again(b *batch) *batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dropLocked(b) {
		l.atLeader = true
		return b
	}
	l.underway = nil
	return l.nextLocked()
}

func (l *lane) exists() bool {
	s := l.p.cfg.Topology.Snapshot()
	return s.ByID[l.ref.Topic] != nil
}

// giveUpIfGone lets go of a lane whose topic was deleted.
func (l *lane) giveUpIfGone() {
	if l.exists() {
		return
	}
	l.mu.Lock()
	if l.underway == nil && len(l.waiting) == 0 {
		l.gone = true
	}
	gone := l.gone
	l.mu.Unlock()
	if gone {
		l.p.forget(l)
	}
}

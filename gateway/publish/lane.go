package publish

import (
	"slices"
	"sync"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

const (
	// firstRetry and lastRetry bound the pause before a partition without a
	// leader is tried again.
	firstRetry = 2 * time.Millisecond
	lastRetry  = 100 * time.Millisecond
)

// lane brings one partition's records to its leader, in order.
type lane struct {
	p     *Publisher
	ref   ident.Partition
	topic string

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
		l.waiting = append(l.waiting, newBatch(acks))
		last++
	}
	b := l.waiting[last]
	if req.Void {
		b.builder.Void(req.Record.Producer, req.Record.Sequence)
	} else {
		b.builder.Add(&req.Record)
	}
	w.none = req.Acks == rpc.AcksNone
	w.answered = w.none
	b.waiters = append(b.waiters, *w)
	l.armLocked(w.deadline)
	send := l.nextLocked()
	l.mu.Unlock()

	if w.none {
		l.finish(w, Result{Offset: -1})
	}
	l.send(send)
	return true
}

// finish answers a record that nobody else answers.
func (l *lane) finish(w *waiter, r Result) {
	r.Topic, r.Partition = l.topic, l.ref.Index
	l.p.finish(w, r)
}

// nextLocked takes the oldest waiting batch, if nothing is under way.
func (l *lane) nextLocked() *batch {
	for l.underway == nil && len(l.waiting) > 0 {
		b := l.waiting[0]
		l.waiting = slices.Delete(l.waiting, 0, 1)
		b.seal()
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
	isOut := func(w waiter) bool { return w.out }
	if !slices.ContainsFunc(b.waiters, isOut) {
		return true
	}
	sealed, err := b.sealed.Filter(func(i int) record.Fate {
		if b.waiters[i].out {
			return record.Drop
		}
		return record.Keep
	})
	if err != nil {
		panic("publish: a batch sealed here must be readable: " + err.Error())
	}
	for i := range b.waiters {
		if w := &b.waiters[i]; w.out {
			l.p.settled(1, w.bytes)
		}
	}
	b.sealed, b.waiters = sealed, slices.DeleteFunc(b.waiters, isOut)
	return len(b.waiters) > 0
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
	bytes := b.bytes()
	if a.Err == nil && !b.orphan {
		l.p.gate.taken(bytes, time.Since(b.begun))
	}
	l.mu.Lock()
	l.underway, l.atLeader, l.refusal = nil, false, nil // from here on the batch is ours alone
	next := l.nextLocked()
	l.mu.Unlock()

	l.tell(b, a)
	l.p.settled(len(b.waiters), bytes)
	b.free()
	if next == nil {
		l.giveUpIfGone()
	}
	return next
}

// tell answers the records of a batch that has ended, and lets those who
// published several of them know that the next answer comes right away.
func (l *lane) tell(b *batch, a rpc.Appended) {
	last := -1
	for i := range b.waiters {
		if b.waiters[i].answered {
			continue
		}
		if last >= 0 {
			owner := b.waiters[last].tag.Owner
			l.tellOne(b, last, a, owner != 0 && owner == b.waiters[i].tag.Owner)
		}
		last = i
	}
	if last >= 0 {
		l.tellOne(b, last, a, false)
	}
}

func (l *lane) tellOne(b *batch, i int, a rpc.Appended, more bool) {
	r := Result{Err: a.Err, More: more}
	if a.Err == nil {
		k := &a.Records[i]
		r.Err, r.Offset, r.Timestamp, r.Duplicate = k.Err, k.Offset, k.Timestamp, k.Duplicate
	}
	l.finish(&b.waiters[i], r)
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
	for i := range b.waiters {
		w := &b.waiters[i]
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

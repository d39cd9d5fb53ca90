package publish

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tidewire/gateway/topology"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// lane brings one partition's records to its leader, in order.
type lane struct {
	p     *Publisher
	ref   ident.Partition
	topic string

	state atomic.Uint64 // see progress

	mu        sync.Mutex
	own       identity
	bareUntil time.Time // until when records go without numbers; see bareFor
	waiting   []*batch  // oldest first; only the last one still takes records
	underway  *batch    // nil: none
	try       uint64    // the try under way: an answer to another is too late
	sentTo    route     // of that try
	atLeader  bool      // it was not answered yet
	returned  bool      // its bytes are no longer written to
	pause     *time.Timer
	retries   int   // of the batch under way, since its leader is the one it is
	refusal   error // why its last try was not taken; nil: it was not refused yet
	expiry    *time.Timer
	expiryAt  time.Time // when expiry fires, less the grain
	gone      bool      // given up; use the successor
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
	plain := !req.Void && req.Record.Producer.IsZero() && req.Record.Idempotency == nil
	bare := plain && !l.bareUntil.IsZero() && time.Now().Before(l.bareUntil)
	w.own = plain && !bare
	last := len(l.waiting) - 1
	if last < 0 || !l.waiting[last].takes(acks, req.Record.Bytes()+framingBytes, w.own, bare) {
		if acks == rpc.AcksNone {
			acks = rpc.AcksAll
		}
		l.waiting = append(l.waiting, newBatch(acks))
		last++
	}
	b := l.waiting[last]
	b.bare = b.bare || bare
	if w.own {
		l.numberLocked(b, &req.Record)
	}
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
func (l *lane) nextLocked() trip {
	for l.underway == nil && len(l.waiting) > 0 {
		b := l.waiting[0]
		l.waiting = slices.Delete(l.waiting, 0, 1)
		b.seal()
		l.retries = 0
		if l.readyLocked(b) {
			l.underway = b
			l.leftLocked()
			return l.departLocked(b)
		}
		b.free()
	}
	return trip{}
}

// answered ends a batch, or sees to its next try. It returns the next batch to
// send now.
func (l *lane) answered(t trip, a rpc.Appended) trip {
	l.mu.Lock()
	if l.try != t.try {
		l.mu.Unlock()
		return trip{} // another try has taken its place
	}
	b := t.batch
	if a.Err == nil && len(a.Records) != len(b.waiters) {
		a.Err = fault.New(fault.UnknownOutcome, "the leader answered %d records of %d; they may have been kept", len(a.Records), len(b.waiters))
	}
	if a.Err != nil {
		b.reached = b.reached || fault.Is(a.Err, fault.UnknownOutcome)
		if again(a.Err) && b.repeatable() && l.retryLocked(b, a.Err) {
			l.mu.Unlock()
			return trip{}
		}
		return l.endUnlock(b, rpc.Appended{Err: l.failedLocked(b, a.Err)})
	}
	if l.judgeLocked(b, a.Records) {
		told, of := l.splitLocked(b, a.Records)
		if len(b.waiters) > 0 && l.retryLocked(b, a.Err) {
			l.mu.Unlock()
			if len(told.waiters) > 0 {
				l.tell(told, rpc.Appended{Records: of})
				l.p.settled(len(told.waiters), told.bytes())
			}
			told.free()
			return trip{}
		}
		b.waiters, a.Records = append(told.waiters, b.waiters...), append(of, refusals(len(b.waiters))...)
	} else if !b.orphan {
		l.p.gate.taken(b.bytes(), time.Since(b.begun))
	}
	return l.endUnlock(b, a)
}

// refusals are the results of records that no leader is left for.
func refusals(n int) []rpc.RecordResult {
	out := make([]rpc.RecordResult, n)
	for i := range out {
		out[i].Err = unavailable(nil)
	}
	return out
}

// failedLocked gives up the batch under way, and its numbers. It returns what
// its records are told.
func (l *lane) failedLocked(b *batch, err error) error {
	switch {
	case !l.exists():
		l.disownLocked()
		return topology.NotFound(l.topic)
	case b.reached:
		l.disownLocked()
		return unknown
	case again(err), fault.Is(err, fault.DiskFull), fault.Lasting(err):
		l.takeBackLocked(b)
	default:
		l.disownLocked()
	}
	return err
}

// endUnlock ends the batch under way with the leader's answer and returns the
// one to send now.
func (l *lane) endUnlock(b *batch, a rpc.Appended) trip {
	l.underway, l.atLeader, l.refusal = nil, false, nil // from here on the batch is ours alone
	l.try++
	l.own.ended = time.Now()
	next := l.nextLocked()
	if next.batch == nil {
		l.restLocked()
	}
	l.mu.Unlock()

	if len(b.waiters) > 0 {
		l.p.metrics.sent(b)
		l.tell(b, a)
		l.p.settled(len(b.waiters), b.bytes())
	}
	b.free()
	if next.batch == nil {
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

package publish

import (
	"bytes"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

const (
	// firstRetry and lastRetry bound the pause before a partition that took
	// nothing is tried again. A new leader ends the pause.
	firstRetry = 2 * time.Millisecond
	lastRetry  = 100 * time.Millisecond
)

// trip is one try of a batch; a zero one is none.
type trip struct {
	batch  *batch
	try    uint64
	sealed record.Batch
	acks   rpc.Acks
}

// route is a partition's leader as the cluster's snapshot names it.
type route struct {
	leader  ident.NodeID
	epoch   ident.Epoch
	version uint64 // of the partition: more than its leader may change
}

func routeIn(s *cluster.Snapshot, ref ident.Partition) (r route) {
	if t := s.ByID[ref.Topic]; t != nil {
		if p, ok := t.Partition(ref.Index); ok {
			r = route{p.Leader, p.LeaderEpoch, p.Version}
		}
	}
	return r
}

// same reports that both go to one leader in one epoch.
func (r route) same(o route) bool { return r.leader == o.leader && r.epoch == o.epoch }

// elsewhere reports that a try went to a leader that is none any more. Of a topic
// that was deleted its leader says so.
func (l *lane) elsewhere(s *cluster.Snapshot) bool {
	return s.ByID[l.ref.Topic] != nil && !routeIn(s, l.ref).same(l.sentTo)
}

// departLocked begins a try of the batch under way.
func (l *lane) departLocked(b *batch) trip {
	l.try++
	l.sentTo = routeIn(l.p.cfg.Topology.Snapshot(), l.ref)
	l.atLeader, l.returned = true, false
	t := trip{batch: b, try: l.try, sealed: b.sealed, acks: b.acks}
	if b.given { // a leader wrote its place into the bytes, and may hold them still
		t.sealed = bytes.Clone(b.sealed)
	}
	b.given = true
	return t
}

// crossing waits for a leader's answer.
type crossing struct {
	lane     *lane
	trip     trip
	returned bool // Append has; guarded by the lane, as is next
	next     trip
}

// send hands a batch to the leader. The answer may come before it returns, so
// batches that follow are sent by a loop and not by recursion.
func (l *lane) send(t trip) {
	for t.batch != nil {
		c := &crossing{lane: l, trip: t}
		l.p.cfg.Leader.Append(rpc.Append{Partition: l.ref, Batch: t.sealed, Acks: t.acks}, c.answered)
		l.mu.Lock()
		c.returned = true
		next := c.next
		if l.try == t.try && l.atLeader {
			l.returned = true
			if l.elsewhere(l.p.cfg.Topology.Snapshot()) { // since meanwhile, and nobody else says so
				next = l.abandonUnlock(l.underway)
				l.mu.Lock()
			}
		}
		l.mu.Unlock()
		t = next
	}
}

func (c *crossing) answered(a rpc.Appended) {
	next := c.lane.answered(c.trip, a)
	c.lane.mu.Lock()
	late := c.returned
	c.next = next
	c.lane.mu.Unlock()
	if late {
		c.lane.send(next)
	}
}

// again reports an error after which the same batch may be sent once more: that
// nothing was kept, or that nobody knows, for the leader knows it again.
func again(err error) bool {
	if fault.Lasting(err) {
		return false
	}
	switch fault.KindOf(err) {
	case fault.LeaderUnavailable, fault.Fenced, fault.Throttled, fault.NotEnoughReplicas, fault.Draining, fault.UnknownOutcome:
		return true
	}
	return false
}

// repeatable reports that another try keeps nothing twice: none may have brought the
// batch into a log, or a leader knows it again.
func (b *batch) repeatable() bool { return !b.bare || !b.reached }

// retryLocked keeps the batch under way for another try a little later; it is
// false when nobody waits for it any more, or its topic is gone. cause is why
// the last one was not taken; nil: it has to be sent under another identity.
func (l *lane) retryLocked(b *batch, cause error) bool {
	l.atLeader = false
	if cause != nil && !fault.Is(cause, fault.UnknownOutcome) {
		l.refusal = cause
	}
	b.orphan = b.orphan || !fault.Is(cause, fault.Throttled)
	if !l.exists() || !b.awaited() {
		return false
	}
	var pause time.Duration
	if routeIn(l.p.cfg.Topology.Snapshot(), l.ref) != l.sentTo {
		l.retries = 0 // there is a new leader already, or more replicas are in sync
	} else if cause != nil {
		pause = min(firstRetry<<min(l.retries, 10), lastRetry)
		l.retries++
	}
	l.try++ // this one is answered
	try := l.try
	l.pause = time.AfterFunc(pause, func() { l.send(l.goOn(b, try)) })
	return true
}

// awaited reports whether there is a record in the batch whose time is not up.
func (b *batch) awaited() bool {
	for i := range b.waiters {
		if !b.waiters[i].over {
			return true
		}
	}
	return false
}

// goOn begins the next try of the batch under way, and returns the batch to send.
func (l *lane) goOn(b *batch, try uint64) trip {
	l.mu.Lock()
	if l.try != try {
		l.mu.Unlock()
		return trip{}
	}
	l.pause = nil
	if b.reached {
		if b.awaited() {
			defer l.mu.Unlock()
			return l.departLocked(b)
		}
		return l.endUnlock(b, rpc.Appended{Err: l.failedLocked(b, unknown)})
	}
	l.takeBackLocked(b)
	if l.readyLocked(b) {
		defer l.mu.Unlock()
		return l.departLocked(b)
	}
	return l.endUnlock(b, rpc.Appended{})
}

// abandonUnlock gives up a try at a leader that is none any more: what it did
// with the batch nobody knows, and its successor may be asked at once.
func (l *lane) abandonUnlock(b *batch) trip {
	b.reached = true
	if b.repeatable() && l.retryLocked(b, unknown) {
		l.mu.Unlock()
		return trip{}
	}
	return l.endUnlock(b, rpc.Appended{Err: l.failedLocked(b, unknown)})
}

// moved tells a lane that its partition may have changed. Another leader ends a try
// at the one before; whatever else has changed may be what a refused try waits for.
func (l *lane) moved(s *cluster.Snapshot) {
	l.mu.Lock()
	var next trip
	switch b := l.underway; {
	case b == nil:
	case !l.atLeader:
		if l.pause != nil && routeIn(s, l.ref) != l.sentTo && l.pause.Stop() {
			l.retries = 0
			l.pause.Reset(0)
		}
	case l.returned && l.elsewhere(s):
		next = l.abandonUnlock(b)
		l.mu.Lock()
	}
	l.mu.Unlock()
	l.send(next)
}

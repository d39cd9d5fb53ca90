package publish

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"tidewire/gateway/topology"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// Records that come without a number of their own are numbered by their lane,
// which is a producer to the leader like any other. So the leader knows a batch
// again that it has already, and a lane may send one as often as it must.

// ownIdle is how long a lane may be idle before it takes another identity. It is
// well below partition.CrowdedAge, from when on a leader may forget a producer.
const ownIdle = time.Minute

// bareFor is how long a lane's records go without numbers once a leader has no room for
// another producer. What becomes of such a batch is then unknown where its answer is lost,
// and not found out by sending it again.
const bareFor = 10 * time.Second

// identity is a lane as a producer.
type identity struct {
	id    ident.ProducerID // zero: to be drawn
	next  int64            // the first number that no log can have seen
	ended time.Time        // when the lane's last batch did
}

// numberLocked gives a record the lane's next number. Which that is depends on
// what becomes of the batches before this one, so it is a guess; where it turns
// out wrong the batch is encoded again.
func (l *lane) numberLocked(b *batch, r *record.Record) {
	if b.owned == 0 {
		if l.own.id.IsZero() || l.underway == nil && len(l.waiting) == 1 && b.begun.Sub(l.own.ended) > ownIdle {
			l.renewLocked()
		}
		b.id, b.first = l.own.id, l.own.next
		for _, before := range l.waiting {
			b.first += int64(before.owned)
		}
	}
	r.Producer, r.Sequence = b.id, b.first+int64(b.owned)
	b.owned++
}

// renewLocked makes the lane another producer. Nothing of the old one may be on
// its way to a leader that still takes it.
func (l *lane) renewLocked() { l.own.id, l.own.next = ident.ProducerID(uuid.New()), 0 }

// readyLocked makes a batch that never reached a log ready for a try: without
// the records whose time is up, and with the numbers that are next. It is false
// when nothing is left.
func (l *lane) readyLocked(b *batch) bool {
	isOver := func(w waiter) bool { return w.over }
	over := slices.ContainsFunc(b.waiters, isOver)
	renumber := b.owned > 0 && (over || b.id != l.own.id || b.first != l.own.next)
	if over || renumber {
		if renumber && l.own.id.IsZero() {
			l.renewLocked()
		}
		b.id, b.first, b.owned = l.own.id, l.own.next, 0
		b.sealed = rewrite(b.sealed, func(i int, e *record.Entry) record.Fate {
			switch w := &b.waiters[i]; {
			case w.over:
				return record.Drop
			case w.own:
				e.Producer, e.Sequence = b.id, b.first+int64(b.owned)
				b.owned++
			}
			return record.Keep
		})
		b.given = false
		for i := range b.waiters {
			if w := &b.waiters[i]; w.over {
				l.p.settled(1, w.bytes)
			}
		}
		b.waiters = slices.DeleteFunc(b.waiters, isOver)
	}
	l.own.next += int64(b.owned)
	return len(b.waiters) > 0
}

// takeBackLocked frees the numbers of a batch that reached no log.
func (l *lane) takeBackLocked(b *batch) {
	if b.owned > 0 && b.id == l.own.id && !b.id.IsZero() {
		l.own.next -= int64(b.owned)
	}
}

// disownLocked gives up the lane's identity: nobody can tell which of its
// numbers a log has seen.
func (l *lane) disownLocked() { l.own.id, l.own.next = ident.ProducerID{}, 0 }

// rewrite is for batches that were sealed here.
func rewrite(b record.Batch, fate func(i int, e *record.Entry) record.Fate) record.Batch {
	out, err := b.Rewrite(fate)
	if err != nil {
		panic("publish: a batch sealed here must be readable: " + err.Error())
	}
	return out
}

// judgeLocked reads what a leader says of the records that the lane numbered, in
// the client's terms. lost says that some are not kept because the leader does
// not know the lane's numbers before them (any more): they are to be sent again
// under another identity; or under none, where it has no room for another producer:
// they need none to be kept.
func (l *lane) judgeLocked(b *batch, results []rpc.RecordResult) (lost bool) {
	if b.owned == 0 {
		return false
	}
	forgotten, crowded := false, false
	for i := range b.waiters {
		if !b.waiters[i].own {
			continue
		}
		switch r := &results[i]; {
		case r.Err == nil:
			r.Duplicate = r.Duplicate && r.Offset < 0 // found again: kept by an earlier try
		case strange(r.Err) && b.reached && time.Since(b.begun) > ownIdle:
			r.Err = unknown // it may be so long ago that the leader has forgotten it
			forgotten = true
		case strange(r.Err):
			lost = true
		case fault.Is(r.Err, fault.Limit):
			lost, crowded = true, true // and what follows has no number to follow
		case fault.Is(r.Err, fault.Invalid):
			r.Err = l.refusedBefore(b, i)
		}
	}
	if crowded {
		l.bareUntil = time.Now().Add(bareFor)
		b.bare = true
	}
	if lost || forgotten {
		l.disownLocked()
	}
	return lost
}

// strange reports that a leader does not know what came before a record.
func strange(err error) bool {
	return fault.Is(err, fault.UnknownProducer) || fault.Is(err, fault.OutOfOrderSequence)
}

// refusedBefore says why a record was refused by a try whose answer got lost:
// the leader knows only that its number was used up.
func (l *lane) refusedBefore(b *batch, i int) error {
	t := l.p.cfg.Topology.Snapshot().ByID[l.ref.Topic]
	if t == nil {
		return topology.NotFound(l.topic)
	}
	var why error = fault.New(fault.Invalid, "the partition's leader refused the record for what it is; nothing was kept")
	rewrite(b.sealed, func(k int, e *record.Entry) record.Fate {
		if k == i {
			if n := e.Bytes(); n > t.Settings.MaxMessageBytes {
				why = TooLarge(t.Name, n, t.Settings.MaxMessageBytes)
			} else if part, ok := t.Partition(l.ref.Index); ok && e.Key != nil && !part.Range.Contains(ident.KeyHash(e.Key)) {
				why = fault.New(fault.WrongPartition, "the key's hash is outside this partition's range; leave partition out to have the right one found")
			}
		}
		return record.Drop
	})
	return why
}

// splitLocked leaves in b the records that are lost and that somebody waits for.
// The others are told by the batch that comes back, with their results.
func (l *lane) splitLocked(b *batch, results []rpc.RecordResult) (told *batch, of []rpc.RecordResult) {
	told = batches.Get().(*batch)
	told.begun, told.orphan = b.begun, b.orphan
	isLost := func(i int) bool {
		w := &b.waiters[i]
		return w.own && !w.over && (strange(results[i].Err) || fault.Is(results[i].Err, fault.Limit))
	}
	b.sealed = rewrite(b.sealed, func(i int, e *record.Entry) record.Fate {
		if !isLost(i) {
			return record.Drop
		}
		if b.bare {
			e.Producer, e.Sequence = ident.ProducerID{}, 0
		}
		return record.Keep
	})
	var lost []waiter
	for i := range b.waiters {
		if isLost(i) {
			w := b.waiters[i]
			w.own = !b.bare
			lost = append(lost, w)
		} else {
			told.waiters, of = append(told.waiters, b.waiters[i]), append(of, results[i])
		}
	}
	b.waiters, b.owned, b.reached, b.given = lost, len(lost), false, false
	b.id = ident.ProducerID{} // to be numbered anew
	if b.bare {
		b.owned = 0
	}
	return told, of
}

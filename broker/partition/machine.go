package partition

import (
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// Rules are the settings that a verdict depends on.
type Rules struct {
	Range             ident.HashRange // keys the partition owns
	MaxMessageBytes   int
	IdempotencyWindow time.Duration
}

// Machine holds the state of one partition. It is not safe for concurrent use.
type Machine struct {
	end       ident.Offset // of everything appended, on disk or on its way
	timestamp int64        // of the last batch, ms since 1970
	producers producers
	keys      keys
}

// New makes the machine of an empty log that begins at start.
func New(start ident.Offset) *Machine {
	return &Machine{end: start, producers: newProducers(), keys: newKeys()}
}

// End is the offset after the last record appended.
func (m *Machine) End() ident.Offset { return m.end }

// NotBefore notes that the log's last batch is of a time, which a state of nothing to
// remember does not say: no later one is of an earlier time.
func (m *Machine) NotBefore(ms int64) { m.timestamp = max(m.timestamp, ms) }

// Timestamp is the time of the last batch in ms since 1970, 0 before the first.
func (m *Machine) Timestamp() int64 { return m.timestamp }

// Plan is what the leader does with a batch.
type Plan struct {
	// Batch is what is to be appended, not yet assigned; nil: nothing is.
	Batch record.Batch
	// Base and Timestamp of that batch.
	Base      ident.Offset
	Timestamp int64
	// Results has the fate of every entry of the batch as it came, in order,
	// once Batch is kept (and with it everything appended before).
	Results []rpc.RecordResult
}

// Append judges a batch entry by entry, each against everything before it, and
// takes what is new into the state. The caller appends Plan.Batch or stops
// leading: there is no way back. now is in ms since 1970; a clock that goes
// back is held at the last batch's time. An error says that the batch cannot
// be read; nothing was taken then.
func (m *Machine) Append(b record.Batch, now int64, rules Rules) (Plan, error) {
	if err := readable(b); err != nil {
		return Plan{}, err
	}
	now = max(now, m.timestamp)
	m.expire(now, rules)
	plan := Plan{Base: m.end, Timestamp: now}
	plan.Results = make([]rpc.RecordResult, 0, b.Header().Entries)
	var fates []record.Fate // from when on there is one that is not to keep
	it := b.Entries()
	for it.Next() {
		result, fate := m.judge(it.Entry(), now, rules)
		if fate != record.Keep && fates == nil {
			fates = make([]record.Fate, len(plan.Results), cap(plan.Results))
			for i := range fates {
				fates[i] = record.Keep
			}
		}
		if fates != nil {
			fates = append(fates, fate)
		}
		plan.Results = append(plan.Results, result)
	}
	plan.Batch = b
	if fates != nil {
		var err error
		if plan.Batch, err = b.Filter(func(i int) record.Fate { return fates[i] }); err != nil {
			panic("partition: a batch that was read whole must be readable: " + err.Error())
		}
	}
	if plan.Batch != nil {
		m.timestamp = now
	}
	return plan, nil
}

// readable walks the whole batch before anything is taken from it.
func readable(b record.Batch) error {
	it := b.Entries()
	records := 0
	for it.Next() {
		e := it.Entry()
		if !e.Void {
			if e.Delta != records {
				return fault.New(fault.Internal, "%w: entry %d has delta %d", record.ErrCorrupt, records, e.Delta)
			}
			records++
		}
	}
	if err := it.Err(); err != nil {
		return fault.New(fault.Internal, "%w", err)
	}
	if h := b.Header(); h.Span != records {
		return fault.New(fault.Internal, "%w: span %d for %d records", record.ErrCorrupt, h.Span, records)
	}
	return nil
}

// expire forgets what is over by the log's own time.
func (m *Machine) expire(now int64, rules Rules) {
	m.producers.expire(now)
	m.keys.expire(now, rules.IdempotencyWindow)
}

// judge decides on one entry and, where it is kept, remembers it. What was kept
// before is found before anything is refused: settings may have changed since.
func (m *Machine) judge(e *record.Entry, now int64, rules Rules) (rpc.RecordResult, record.Fate) {
	if e.Void {
		return m.judgeVoid(e, now)
	}
	if !e.Producer.IsZero() {
		if result, known := m.repeat(e, now); known {
			return result, record.Drop
		}
	}
	var idem keyed
	if e.Idempotency != nil {
		idem = keyed{digest: digestOf(e.Idempotency), content: e.Idempotency.Hash, offset: m.end, timestamp: now}
		held, ok := m.held(e)
		switch {
		case ok && held.content != idem.content:
			return m.useUp(e, now, reused(e.Idempotency))
		case ok:
			// The producer's number is the next, so its record was kept before
			// under another: the number is used up by this answer.
			_, fate := m.useUp(e, now, nil)
			return duplicate(held), fate
		}
	}
	if err := m.refuse(e, rules); err != nil {
		return m.useUp(e, now, err)
	}
	if e.Idempotency != nil {
		if len(m.keys.byDigest) >= MaxKeys {
			return rpc.RecordResult{Err: fault.New(fault.Limit, "the partition remembers %d Idempotency-Keys and can take no more until some pass the window of %s", MaxKeys, rules.IdempotencyWindow)}, record.Drop
		}
		m.keys.add(idem)
	}
	if !e.Producer.IsZero() {
		m.producers.add(e.Producer, run{sequence: e.Sequence, offset: m.end, count: 1, timestamp: now})
	}
	result := rpc.RecordResult{Offset: m.end, Timestamp: now}
	m.end++
	return result, record.Keep
}

// held finds the record that an Idempotency-Key brought.
func (m *Machine) held(e *record.Entry) (keyed, bool) {
	if e.Idempotency == nil {
		return keyed{}, false
	}
	k, ok := m.keys.byDigest[digestOf(e.Idempotency)]
	return k, ok
}

// Original finds the record that an Idempotency-Key brought within the topic's window; false:
// none did. Another content under the key is an error. now is in ms since 1970.
func (m *Machine) Original(k *record.Idempotency, now int64, rules Rules) (rpc.RecordResult, bool) {
	held, ok := m.keys.byDigest[digestOf(k)]
	switch {
	case !ok, max(now, m.timestamp)-held.timestamp > rules.IdempotencyWindow.Milliseconds():
		return rpc.RecordResult{}, false
	case held.content != k.Hash:
		return rpc.RecordResult{Err: reused(k)}, true
	}
	return duplicate(held), true
}

func reused(k *record.Idempotency) error {
	return fault.New(fault.IdempotencyKeyReused, "Idempotency-Key %q came before with another key, content type or body", k.Key)
}

func duplicate(k keyed) rpc.RecordResult {
	return rpc.RecordResult{Offset: k.offset, Timestamp: k.timestamp, Duplicate: true}
}

// Repeats answers a batch of nothing but repeats, which needs no room in the
// log; ok is false where anything in it is new, or refused. Nothing changes.
func (m *Machine) Repeats(b record.Batch) (results []rpc.RecordResult, ok bool) {
	it := b.Entries()
	for it.Next() {
		e := it.Entry()
		if !e.Producer.IsZero() && !m.came(e) {
			return nil, false
		}
		switch held, known := m.held(e); {
		case e.Void:
			results = append(results, rpc.RecordResult{Offset: -1})
		case !e.Producer.IsZero():
			result, _ := m.repeat(e, m.timestamp)
			results = append(results, result)
		case known && held.content == e.Idempotency.Hash:
			results = append(results, duplicate(held))
		default:
			return nil, false
		}
	}
	return results, it.Err() == nil && len(results) > 0
}

// came says that a producer's number was used before.
func (m *Machine) came(e *record.Entry) bool {
	p := m.producers.get(e.Producer)
	if p == nil || e.Sequence >= p.next {
		return false
	}
	_, known := p.find(e.Sequence)
	return known || !e.Producer.System()
}

// useUp answers a record that is not kept for what it is. If it has a number,
// which is its producer's next, that is used up: those behind it, which may be
// on their way already, are no reason to refuse. The cluster's own producers come again
// with the same record and the same number.
func (m *Machine) useUp(e *record.Entry, now int64, err error) (rpc.RecordResult, record.Fate) {
	if e.Producer.IsZero() || e.Producer.System() {
		return rpc.RecordResult{Err: err}, record.Drop
	}
	m.producers.add(e.Producer, run{sequence: e.Sequence, count: 1, timestamp: now, void: true})
	return rpc.RecordResult{Err: err}, record.UseUp
}

// refuse says why a record cannot be kept here, whoever sends it.
func (m *Machine) refuse(e *record.Entry, rules Rules) error {
	if e.Key != nil && !rules.Range.Contains(ident.KeyHash(e.Key)) {
		return fault.New(fault.WrongPartition, "the key's hash is outside this partition's range; leave partition out to have the right one found")
	}
	if n := e.Bytes(); n > rules.MaxMessageBytes {
		return fault.New(fault.MessageTooLarge, "a record takes at most %d bytes (max_message_bytes); this one has %d", rules.MaxMessageBytes, n).
			With("max_message_bytes", rules.MaxMessageBytes)
	}
	return nil
}

// repeat answers a sequenced record that is not the producer's next, or, of the cluster's
// own producers, not new.
func (m *Machine) repeat(e *record.Entry, now int64) (rpc.RecordResult, bool) {
	p := m.producers.get(e.Producer)
	if p == nil {
		return m.unknown(e, now)
	}
	switch {
	case e.Producer.System() && !m.came(e):
		return rpc.RecordResult{}, false
	case e.Sequence == p.next:
		return rpc.RecordResult{}, false
	case e.Sequence > p.next:
		return rpc.RecordResult{Err: outOfOrder(e, p.next)}, true
	}
	r, ok := p.find(e.Sequence)
	switch {
	case !ok:
		return rpc.RecordResult{Offset: -1, Duplicate: true}, true
	case r.void:
		if held, ok := m.held(e); ok && held.content == e.Idempotency.Hash {
			return duplicate(held), true // the number was used up by this very answer
		}
		return rpc.RecordResult{Err: fault.New(fault.Invalid, "sequence %d was used up by a record that was refused; send the next one", e.Sequence).With("field", "sequence").With("expected", p.next)}, true
	}
	return rpc.RecordResult{Offset: r.offset, Timestamp: r.timestamp, Duplicate: true}, true
}

func (m *Machine) unknown(e *record.Entry, now int64) (rpc.RecordResult, bool) {
	if e.Sequence > 0 && !e.Producer.System() {
		return rpc.RecordResult{Err: fault.New(fault.UnknownProducer, "producer %s is not known here (any more), so sequence %d cannot be placed; start a new producer at 0", e.Producer, e.Sequence).With("expected", 0)}, true
	}
	if !m.producers.takes(now) {
		return rpc.RecordResult{Err: fault.New(fault.Limit, "the partition remembers %d producers and can take no more until some are silent for %s", MaxProducers, CrowdedAge)}, true
	}
	return rpc.RecordResult{}, false
}

func outOfOrder(e *record.Entry, expected int64) error {
	return fault.New(fault.OutOfOrderSequence, "producer %s sent sequence %d where %d is expected", e.Producer, e.Sequence, expected).
		With("expected", expected)
}

// judgeVoid uses a sequence up. One that is used up already is fine.
func (m *Machine) judgeVoid(e *record.Entry, now int64) (rpc.RecordResult, record.Fate) {
	if result, known := m.repeat(e, now); known {
		if p := m.producers.get(e.Producer); p != nil && e.Sequence < p.next {
			return rpc.RecordResult{Offset: -1}, record.Drop
		}
		return result, record.Drop
	}
	m.producers.add(e.Producer, run{sequence: e.Sequence, count: 1, timestamp: now, void: true})
	return rpc.RecordResult{Offset: -1}, record.Keep
}

// Fold takes a batch of the log into the state, as it is: the log is the truth,
// so nothing is judged. Batches come in order; one below the end is skipped.
func (m *Machine) Fold(b record.Batch, rules Rules) error {
	h := b.Header()
	if h.Next() < m.end || h.Span > 0 && h.Next() == m.end {
		return nil
	}
	it := b.Entries()
	for it.Next() {
		e := it.Entry()
		r := run{sequence: e.Sequence, count: 1, timestamp: h.Timestamp, void: e.Void}
		if !e.Void {
			r.offset = h.Base + ident.Offset(e.Delta)
		}
		if !e.Producer.IsZero() {
			m.foldSequence(e.Producer, r)
		}
		if e.Idempotency != nil {
			m.keys.add(keyed{digest: digestOf(e.Idempotency), content: e.Idempotency.Hash, offset: r.offset, timestamp: h.Timestamp})
		}
	}
	if err := it.Err(); err != nil {
		return err
	}
	m.end, m.timestamp = max(m.end, h.Next()), max(m.timestamp, h.Timestamp)
	m.expire(m.timestamp, rules)
	return nil
}

// foldSequence adds a sequence unless it is known: a batch of voids may come
// again, since it has no offset to be recognised by.
func (m *Machine) foldSequence(id ident.ProducerID, r run) {
	if p := m.producers.get(id); p != nil && r.void && r.sequence < p.next {
		return
	}
	m.producers.add(id, r)
}

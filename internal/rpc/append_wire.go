package rpc

import (
	"google.golang.org/protobuf/encoding/protowire"

	"tidewire/internal/ident"
	"tidewire/internal/record"
)

// appendRequest is tidewirepb.AppendRequest.
type appendRequest struct {
	items    []appendItem
	received uint64
}

type appendItem struct {
	id uint64
	Append
}

// appendResponse is tidewirepb.AppendResponse.
type appendResponse struct {
	items []answer
}

type answer struct {
	id uint64
	Appended
}

// itemBytes is more than an item takes beside its batch.
const itemBytes = 64

func (m *appendRequest) encode(e *encoder) {
	e.begin()
	for i := range m.items {
		it := &m.items[i]
		o := e.open(1)
		e.varint(1, it.id)
		e.partition(2, it.Partition)
		e.varint(3, uint64(it.Epoch))
		e.varint(4, uint64(it.Acks))
		e.bytes(5, it.Batch)
		e.close(o)
	}
	e.varint(2, m.received)
}

// decode reads a message into m, whose items it reuses. Batches are copies, unless
// the bytes are given away with it.
func (m *appendRequest) decode(b []byte, given bool) error {
	m.items, m.received = m.items[:0], 0
	d := decoder{rest: b}
	for d.next() {
		switch d.field {
		case 1:
			m.items = append(m.items, appendItem{})
			it := &m.items[len(m.items)-1]
			d.inner(it.decode(d.b, given))
		case 2:
			m.received = d.v
		}
	}
	return d.err
}

func (it *appendItem) decode(b []byte, given bool) error {
	d := decoder{rest: b}
	for d.next() {
		switch d.field {
		case 1:
			it.id = d.v
		case 2:
			it.Partition = d.partition()
		case 3:
			it.Epoch = d.epoch()
		case 4:
			it.Acks = AcksAll
			if d.v <= uint64(AcksNone) {
				it.Acks = Acks(d.v)
			}
		case 5:
			it.Batch = keep(d.b, given)
		}
	}
	return d.err
}

// keep makes bytes of a message last beyond it.
func keep(b []byte, given bool) []byte {
	if given {
		return b[:len(b):len(b)]
	}
	return append([]byte(nil), b...)
}

func (m *appendResponse) encode(e *encoder) {
	e.begin()
	for i := range m.items {
		it := &m.items[i]
		o := e.open(1)
		e.varint(1, it.id)
		e.problem(2, it.Err)
		if run, ok := runOf(it.Records); ok {
			at := e.small(3)
			e.varint(1, uint64(run.offset))
			e.varint(2, uint64(run.timestamp))
			e.varint(3, uint64(run.count))
			e.end(at)
		} else {
			for k := range it.Records {
				e.record(4, &it.Records[k])
			}
		}
		e.close(o)
	}
}

func (e *encoder) record(field protowire.Number, r *RecordResult) {
	o := e.open(field)
	e.problem(1, r.Err)
	e.varint(2, protowire.EncodeZigZag(int64(r.Offset)))
	e.varint(3, uint64(r.Timestamp))
	e.bool(4, r.Duplicate)
	e.close(o)
}

// run says of records that all of them were kept one after the other.
type run struct {
	offset    ident.Offset
	timestamp int64
	count     int
}

func runOf(records []RecordResult) (run, bool) {
	if len(records) == 0 {
		return run{}, false
	}
	first := records[0]
	for i, r := range records {
		if r.Err != nil || r.Duplicate || r.Offset < 0 || r.Offset != first.Offset+ident.Offset(i) || r.Timestamp != first.Timestamp {
			return run{}, false
		}
	}
	return run{first.Offset, first.Timestamp, len(records)}, true
}

// Bounds of the records of an answer, and of a message, that a few bytes can claim.
const (
	maxRun     = 2 * record.MaxEntries
	maxRecords = 16 * maxRun
)

func (m *appendResponse) decode(b []byte) error {
	m.items = m.items[:0]
	records := 0
	d := decoder{rest: b}
	for d.next() {
		if d.field != 1 {
			continue
		}
		m.items = append(m.items, answer{})
		a := &m.items[len(m.items)-1]
		d.inner(a.decode(d.b))
		if records += len(a.Records); records > maxRecords {
			return errMalformed
		}
	}
	return d.err
}

func (a *answer) decode(b []byte) error {
	d := decoder{rest: b}
	for d.next() {
		switch d.field {
		case 1:
			a.id = d.v
		case 2:
			a.Err = d.problem()
		case 3:
			var r run
			d.inner(r.decode(d.b))
			if r.count > maxRun {
				return errMalformed
			}
			a.Records = make([]RecordResult, r.count)
			for i := range a.Records {
				a.Records[i] = RecordResult{Offset: r.offset + ident.Offset(i), Timestamp: r.timestamp}
			}
		case 4:
			if len(a.Records) >= maxRun {
				return errMalformed
			}
			a.Records = append(a.Records, RecordResult{})
			d.inner(a.Records[len(a.Records)-1].decode(d.b))
		}
	}
	return d.err
}

func (r *run) decode(b []byte) error {
	d := decoder{rest: b}
	for d.next() {
		switch d.field {
		case 1:
			r.offset = d.offset()
		case 2:
			r.timestamp = int64(d.v)
		case 3:
			r.count = int(min(d.v, maxRun+1))
		}
	}
	return d.err
}

func (r *RecordResult) decode(b []byte) error {
	d := decoder{rest: b}
	for d.next() {
		switch d.field {
		case 1:
			r.Err = d.problem()
		case 2:
			r.Offset = ident.Offset(protowire.DecodeZigZag(d.v))
		case 3:
			r.Timestamp = int64(d.v)
		case 4:
			r.Duplicate = d.v != 0
		}
	}
	return d.err
}

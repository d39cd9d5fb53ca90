package partition

import (
	"container/list"
	"encoding/binary"
	"errors"
	"slices"

	"tidewire/internal/ident"
	"tidewire/internal/parts"
)

// ErrSnapshot says that bytes are not a snapshot of a machine's state; the
// state is then rebuilt from the log.
var ErrSnapshot = errors.New("not a snapshot of producer state")

const snapshotVersion = 1

// Empty reports that there is nothing to remember but the end.
func (m *Machine) Empty() bool {
	return len(m.producers.byID) == 0 && len(m.keys.byDigest) == 0
}

// Snapshot encodes what the machine remembers of producers and keys as of
// End. It is nil when there is nothing.
//
//	1 byte version · varint timestamp · uvarint n · n × producer · uvarint n · n × key
//	producer: 16 bytes id · uvarint next · varint last · uvarint n · n × run
//	run:      uvarint sequence · uvarint offset · uvarint count · varint timestamp · 1 byte void
//	key:      16 bytes digest · 16 bytes content · uvarint offset · varint timestamp
func (m *Machine) Snapshot() []byte {
	if m.Empty() {
		return nil
	}
	held := m.keys.order[m.keys.start:]
	b := make([]byte, 0, 32+40*len(m.producers.byID)+16*m.producers.runs+48*len(held))
	b = append(b, snapshotVersion)
	b = binary.AppendVarint(b, m.timestamp)
	b = binary.AppendUvarint(b, uint64(len(m.producers.byID)))
	for _, l := range []*list.List{m.producers.own, m.producers.age} {
		for e := l.Front(); e != nil; e = e.Next() {
			b = appendProducer(b, e.Value.(*producer))
		}
	}
	b = binary.AppendUvarint(b, uint64(len(held)))
	for _, k := range held {
		b = append(b, k.digest[:]...)
		b = append(b, k.content[:]...)
		b = binary.AppendUvarint(b, uint64(k.offset))
		b = binary.AppendVarint(b, k.timestamp)
	}
	return b
}

func appendProducer(b []byte, p *producer) []byte {
	b = append(b, p.id[:]...)
	b = binary.AppendUvarint(b, uint64(p.next))
	b = binary.AppendVarint(b, p.last)
	b = binary.AppendUvarint(b, uint64(len(p.runs)))
	for _, r := range p.runs {
		b = appendRun(b, r)
	}
	return b
}

func appendRun(b []byte, r run) []byte {
	b = binary.AppendUvarint(b, uint64(r.sequence))
	b = binary.AppendUvarint(b, uint64(r.offset))
	b = binary.AppendUvarint(b, uint64(r.count))
	b = binary.AppendVarint(b, r.timestamp)
	if r.void {
		return append(b, 1)
	}
	return append(b, 0)
}

// Restore makes the machine of a snapshot that was taken when the end was at.
// An empty snapshot is the state of nothing to remember.
func Restore(snapshot []byte, at ident.Offset) (*Machine, error) {
	m := New(at)
	if len(snapshot) == 0 {
		return m, nil
	}
	if snapshot[0] != snapshotVersion {
		return nil, ErrSnapshot
	}
	d := parts.Of(snapshot[1:])
	m.timestamp = d.Varint()
	for n := d.Count(18); n > 0 && !d.Bad(); n-- {
		m.restoreProducer(&d)
	}
	for n := d.Count(34); n > 0 && !d.Bad(); n-- {
		var k keyed
		copy(k.digest[:], d.Take(16))
		copy(k.content[:], d.Take(16))
		k.offset, k.timestamp = ident.Offset(d.Uvarint()), d.Varint()
		m.keys.add(k)
	}
	if !d.Done() {
		return nil, ErrSnapshot
	}
	return m, nil
}

func (m *Machine) restoreProducer(d *parts.Reader) {
	p := &producer{}
	copy(p.id[:], d.Take(16))
	p.next, p.last = int64(d.Uvarint()), d.Varint()
	n := d.Count(5)
	p.runs = slices.Grow(p.runs, n)
	for ; n > 0 && !d.Bad(); n-- {
		r := run{sequence: int64(d.Uvarint()), offset: ident.Offset(d.Uvarint()), count: int64(d.Uvarint()), timestamp: d.Varint()}
		r.void = d.Byte() == 1
		if r.sequence < 0 || r.offset < 0 || r.count < 1 || r.count > 1<<53 {
			d.Fail()
		}
		p.records += r.count
		p.runs = append(p.runs, r)
	}
	if d.Bad() || p.next < 0 || len(p.runs) == 0 || m.producers.byID[p.id] != nil {
		d.Fail()
		return
	}
	p.place = m.producers.listOf(p.id).PushBack(p)
	m.producers.byID[p.id] = p
	m.producers.runs += len(p.runs)
}

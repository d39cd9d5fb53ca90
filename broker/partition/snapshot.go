package partition

import (
	"encoding/binary"
	"errors"

	"tidewire/internal/ident"
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
	b := []byte{snapshotVersion}
	b = binary.AppendVarint(b, m.timestamp)
	b = binary.AppendUvarint(b, uint64(m.producers.age.Len()))
	for e := m.producers.age.Front(); e != nil; e = e.Next() {
		p := e.Value.(*producer)
		b = append(b, p.id[:]...)
		b = binary.AppendUvarint(b, uint64(p.next))
		b = binary.AppendVarint(b, p.last)
		b = binary.AppendUvarint(b, uint64(len(p.runs)))
		for _, r := range p.runs {
			b = appendRun(b, r)
		}
	}
	held := m.keys.order[m.keys.start:]
	b = binary.AppendUvarint(b, uint64(len(held)))
	for _, k := range held {
		b = append(b, k.digest[:]...)
		b = append(b, k.content[:]...)
		b = binary.AppendUvarint(b, uint64(k.offset))
		b = binary.AppendVarint(b, k.timestamp)
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
	d := decoder{b: snapshot[1:]}
	m.timestamp = d.varint()
	for n := d.count(18); n > 0 && !d.bad; n-- {
		m.restoreProducer(&d)
	}
	for n := d.count(34); n > 0 && !d.bad; n-- {
		var k keyed
		copy(k.digest[:], d.take(16))
		copy(k.content[:], d.take(16))
		k.offset, k.timestamp = ident.Offset(d.uvarint()), d.varint()
		m.keys.add(k)
	}
	if d.bad || len(d.b) > 0 {
		return nil, ErrSnapshot
	}
	return m, nil
}

func (m *Machine) restoreProducer(d *decoder) {
	p := &producer{}
	copy(p.id[:], d.take(16))
	p.next, p.last = int64(d.uvarint()), d.varint()
	for n := d.count(5); n > 0 && !d.bad; n-- {
		r := run{sequence: int64(d.uvarint()), offset: ident.Offset(d.uvarint()), count: int64(d.uvarint()), timestamp: d.varint()}
		r.void = d.byte() == 1
		if r.sequence < 0 || r.offset < 0 || r.count < 1 || r.count > 1<<53 {
			d.bad = true
		}
		p.records += r.count
		p.runs = append(p.runs, r)
	}
	if d.bad || p.next < 0 || len(p.runs) == 0 || m.producers.byID[p.id] != nil {
		d.bad = true
		return
	}
	p.place = m.producers.age.PushBack(p)
	m.producers.byID[p.id] = p
	m.producers.runs += len(p.runs)
}

// decoder takes parts off b; after the first fault it stays bad.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) take(n int) []byte {
	if n > len(d.b) {
		d.bad, d.b = true, nil
		return nil
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) byte() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

// count reads how many things follow, each of at least size bytes.
func (d *decoder) count(size int) uint64 {
	n := d.uvarint()
	if n > uint64(len(d.b)/size) {
		d.bad, d.b = true, nil
		return 0
	}
	return n
}

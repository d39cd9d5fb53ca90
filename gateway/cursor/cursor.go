// Package cursor is where a reader stands in a topic, as one opaque string
// that any gateway understands. It is pure.
//
// A cursor is a cut of the topic's layout: the partitions to go on with, each
// with the leader epoch and the offset of the next record to read, held
// together by the topic's id, the generation of the layout and the range of
// key hashes that the cut covers. The parts only make sense as a unit, so they
// travel as one:
//
//	1 byte version · 16 bytes topic id · uvarint generation · uvarint lo · uvarint hi ·
//	uvarint n · n × (uvarint partition − previous partition, uvarint epoch, uvarint offset) ·
//	4 bytes CRC-32C, all in unpadded URL-safe base64
package cursor

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"slices"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/parts"
	"tidewire/internal/record"
)

// Place is where a reader stands in one partition.
type Place struct {
	Partition ident.Index
	Epoch     ident.Epoch  // a leader epoch in which Offset was at or below the high watermark
	Offset    ident.Offset // of the next record to read
}

// Cursor is a cut of a topic's layout.
type Cursor struct {
	Topic      ident.TopicID
	Generation ident.Generation
	Range      ident.HashRange // the key hashes that the places cover together
	Places     []Place         // by partition, ascending
}

// ErrUnknown says that a string is no cursor.
var ErrUnknown = errors.New("not a cursor")

const version = 1

// MaxBytes bounds an encoded cursor, so that it fits a Last-Event-ID header.
const MaxBytes = 4096

// String encodes the cursor.
func (c Cursor) String() string { return string(c.AppendTo(nil)) }

// AppendTo appends the encoded cursor to text. The bytes that are encoded stand
// there too meanwhile, so where there is room nothing is allocated.
func (c Cursor) AppendTo(text []byte) []byte {
	start := len(text)
	b := append(text, version)
	b = append(b, c.Topic[:]...)
	b = binary.AppendUvarint(b, uint64(c.Generation))
	b = binary.AppendUvarint(b, c.Range.Lo)
	b = binary.AppendUvarint(b, c.Range.Hi)
	b = binary.AppendUvarint(b, uint64(len(c.Places)))
	last := ident.Index(0)
	for _, p := range c.Places {
		b = binary.AppendUvarint(b, uint64(p.Partition-last))
		b = binary.AppendUvarint(b, uint64(p.Epoch))
		b = binary.AppendUvarint(b, uint64(p.Offset))
		last = p.Partition
	}
	b = binary.LittleEndian.AppendUint32(b, record.Checksum(b[start:]))
	end := len(b)
	b = base64.RawURLEncoding.AppendEncode(b, b[start:])
	return b[:start+copy(b[start:], b[end:])]
}

// Parse decodes a cursor; anything that String did not write is ErrUnknown.
func Parse(s string) (Cursor, error) {
	if len(s) > MaxBytes {
		return Cursor{}, ErrUnknown
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) < 1+16+4 || b[0] != version {
		return Cursor{}, ErrUnknown
	}
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if record.Checksum(body) != sum {
		return Cursor{}, ErrUnknown
	}
	var c Cursor
	copy(c.Topic[:], body[1:17])
	r := parts.Of(body[17:])
	c.Generation = ident.Generation(r.Uvarint())
	c.Range = ident.HashRange{Lo: r.Uvarint(), Hi: r.Uvarint()}
	n := r.Count(3)
	if r.Bad() || !c.Range.Valid() {
		return Cursor{}, ErrUnknown
	}
	c.Places = make([]Place, 0, n)
	last := uint64(0)
	for i := range n {
		step := r.Uvarint()
		if i > 0 && step == 0 {
			return Cursor{}, ErrUnknown
		}
		last += step
		p := Place{Partition: ident.Index(last), Epoch: ident.Epoch(r.Uvarint()), Offset: ident.Offset(r.Uvarint())}
		if last > 1<<32-1 || p.Offset < 0 {
			return Cursor{}, ErrUnknown
		}
		c.Places = append(c.Places, p)
	}
	if !r.Done() {
		return Cursor{}, ErrUnknown
	}
	return c, nil
}

// Place finds the place in a partition.
func (c Cursor) Place(i ident.Index) (Place, bool) {
	k, ok := slices.BinarySearchFunc(c.Places, i, func(p Place, i ident.Index) int { return int(int64(p.Partition) - int64(i)) })
	if !ok {
		return Place{}, false
	}
	return c.Places[k], true
}

// Of makes the cursor of a reader of topic t that covers r and stands at
// places, which it sorts.
func Of(t *cluster.Topic, r ident.HashRange, places []Place) Cursor {
	slices.SortFunc(places, func(a, b Place) int { return int(int64(a.Partition) - int64(b.Partition)) })
	return Cursor{Topic: t.ID, Generation: t.Generation, Range: r, Places: places}
}

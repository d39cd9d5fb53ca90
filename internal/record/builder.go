package record

import (
	"encoding/binary"
	"slices"

	"tidewire/internal/ident"
)

// Builder gathers records into a batch. The zero value is ready; it is not
// safe for concurrent use.
type Builder struct {
	producers []ident.ProducerID
	numbers   map[ident.ProducerID]int // of producers, once there are many
	entries   []byte
	count     int // entries
	span      int // records
}

// keepBytes is how much room a builder keeps from batch to batch.
const keepBytes = 2 << 20

// Len is the number of entries so far.
func (b *Builder) Len() int { return b.count }

// Bytes is about the size of the batch so far.
func (b *Builder) Bytes() int {
	return HeaderBytes + len(b.producers)*16 + binary.MaxVarintLen32 + len(b.entries)
}

// Add appends a record. Its bytes are copied.
func (b *Builder) Add(r *Record) {
	at := b.beginEntry(len(r.Key) + len(r.Value))
	b.entries = b.appendRecord(b.entries, r)
	b.endEntry(at)
	b.span++
}

// Void appends the news that a producer's sequence was used up.
func (b *Builder) Void(p ident.ProducerID, sequence int64) {
	at := b.beginEntry(0)
	e := append(b.entries, attrVoid|attrProducer)
	e = binary.AppendUvarint(e, uint64(b.span))
	e = binary.AppendUvarint(e, uint64(b.number(p)))
	b.entries = binary.AppendUvarint(e, uint64(sequence))
	b.endEntry(at)
}

// entryAt is where an entry is written: its length goes to start, and what it
// is begins at body.
type entryAt struct{ start, body int }

// beginEntry makes room for an entry's length, which is known at its end, as
// wide as that of one with a little more than so many bytes.
func (b *Builder) beginEntry(bytes int) entryAt {
	at := entryAt{start: len(b.entries)}
	b.entries = binary.AppendUvarint(b.entries, uint64(bytes+16))
	at.body = len(b.entries)
	return at
}

func (b *Builder) endEntry(at entryAt) {
	var room [binary.MaxVarintLen64]byte
	length := binary.AppendUvarint(room[:0], uint64(len(b.entries)-at.body))
	if len(length) != at.body-at.start { // the guess was off
		b.entries = slices.Replace(b.entries, at.start, at.body, length...)
	} else {
		copy(b.entries[at.start:], length)
	}
	b.count++
}

func (b *Builder) appendRecord(e []byte, r *Record) []byte {
	var attrs byte
	if r.Key != nil {
		attrs |= attrKey
	}
	if r.Tombstone {
		attrs |= attrTombstone
	}
	if !r.Producer.IsZero() {
		attrs |= attrProducer
	}
	if r.Idempotency != nil {
		attrs |= attrIdempotency
	}
	if len(r.Headers) > 0 {
		attrs |= attrHeaders
	}
	if r.ContentType == JSON {
		attrs |= attrJSON
	}
	e = append(e, attrs)
	e = binary.AppendUvarint(e, uint64(b.span))
	if attrs&attrProducer != 0 {
		e = binary.AppendUvarint(e, uint64(b.number(r.Producer)))
		e = binary.AppendUvarint(e, uint64(r.Sequence))
	}
	if attrs&attrKey != 0 {
		e = appendBytes(e, r.Key)
	}
	if attrs&attrIdempotency != 0 {
		e = appendBytes(e, r.Idempotency.Principal)
		e = appendBytes(e, r.Idempotency.Key)
		e = append(e, r.Idempotency.Hash[:]...)
	}
	if attrs&attrJSON == 0 {
		e = appendBytes(e, r.ContentType)
	}
	if attrs&attrHeaders != 0 {
		e = binary.AppendUvarint(e, uint64(len(r.Headers)))
		for _, h := range r.Headers {
			e = appendBytes(e, h.Name)
			e = appendBytes(e, h.Value)
		}
	}
	return append(e, r.Value...)
}

func appendBytes[T string | []byte](e []byte, b T) []byte {
	e = binary.AppendUvarint(e, uint64(len(b)))
	return append(e, b...)
}

// manyProducers is where a map beats looking through the table.
const manyProducers = 8

func (b *Builder) number(p ident.ProducerID) int {
	if b.numbers != nil {
		if i, ok := b.numbers[p]; ok {
			return i
		}
	} else {
		for i, q := range b.producers {
			if p == q {
				return i
			}
		}
	}
	b.producers = append(b.producers, p)
	i := len(b.producers) - 1
	switch {
	case b.numbers != nil:
		b.numbers[p] = i
	case len(b.producers) > manyProducers:
		b.numbers = make(map[ident.ProducerID]int, 2*len(b.producers))
		for k, q := range b.producers {
			b.numbers[q] = k
		}
	}
	return i
}

// Seal returns the batch, with the body's checksum written and the leader's
// part of the header still open, and empties the builder.
func (b *Builder) Seal() Batch {
	out := make([]byte, HeaderBytes, b.Bytes())
	out = binary.AppendUvarint(out, uint64(len(b.producers)))
	for i := range b.producers {
		out = append(out, b.producers[i][:]...)
	}
	out = append(out, b.entries...)
	le := binary.LittleEndian
	le.PutUint32(out[0:], uint32(len(out)))
	out[4] = Version
	le.PutUint32(out[12:], Checksum(out[HeaderBytes:]))
	le.PutUint32(out[56:], uint32(b.span))
	le.PutUint32(out[60:], uint32(b.count))
	b.producers, b.numbers = b.producers[:0], nil
	if b.entries = b.entries[:0]; cap(b.entries) > keepBytes {
		b.entries = nil
	}
	b.count, b.span = 0, 0
	return out
}

package record

import (
	"encoding/binary"

	"tidewire/internal/ident"
)

// Builder gathers records into a batch. The zero value is ready; it is not
// safe for concurrent use.
type Builder struct {
	producers []ident.ProducerID
	numbers   map[ident.ProducerID]int // of producers, once there are many
	entries   []byte
	scratch   []byte
	count     int // entries
	span      int // records
}

// Len is the number of entries so far.
func (b *Builder) Len() int { return b.count }

// Bytes is about the size of the batch so far.
func (b *Builder) Bytes() int {
	return HeaderBytes + len(b.producers)*16 + binary.MaxVarintLen32 + len(b.entries)
}

// Add appends a record. Its bytes are copied.
func (b *Builder) Add(r *Record) {
	b.scratch = b.appendRecord(b.scratch[:0], r)
	b.appendEntry()
	b.span++
}

// Void appends the news that a producer's sequence was used up.
func (b *Builder) Void(p ident.ProducerID, sequence int64) {
	e := append(b.scratch[:0], attrVoid|attrProducer)
	e = binary.AppendUvarint(e, uint64(b.span))
	e = binary.AppendUvarint(e, uint64(b.number(p)))
	b.scratch = binary.AppendUvarint(e, uint64(sequence))
	b.appendEntry()
}

func (b *Builder) appendEntry() {
	b.entries = binary.AppendUvarint(b.entries, uint64(len(b.scratch)))
	b.entries = append(b.entries, b.scratch...)
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
	b.entries, b.scratch = b.entries[:0], b.scratch[:0]
	b.count, b.span = 0, 0
	return out
}

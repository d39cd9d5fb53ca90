package record

import (
	"encoding/binary"
	"fmt"

	"tidewire/internal/ident"
	"tidewire/internal/parts"
)

// Iterator walks the entries of a batch. It checks every length it meets, so
// it is safe on any bytes; checksums are the caller's affair.
type Iterator struct {
	producers []byte
	rest      []byte
	left      int
	span      int
	err       error
	entry     Entry
}

// Entries starts a walk. Use it as
//
//	it := batch.Entries()
//	for it.Next() {
//		e := it.Entry() // valid until the next call of Next
//	}
//	err := it.Err()
func (b Batch) Entries() Iterator {
	h, err := ParseHeader(b)
	if err != nil {
		return Iterator{err: err}
	}
	it := Iterator{left: h.Entries, span: h.Span}
	body := b[HeaderBytes:]
	n, w := binary.Uvarint(body)
	if w <= 0 || n > uint64(len(body)-w)/16 {
		return Iterator{err: fmt.Errorf("%w: producer table", ErrCorrupt)}
	}
	it.producers = body[w : w+int(n)*16]
	it.rest = body[w+int(n)*16:]
	return it
}

// Next moves to the next entry; false at the end or at an error.
func (it *Iterator) Next() bool {
	if it.err != nil {
		return false
	}
	if it.left == 0 {
		if len(it.rest) > 0 {
			it.err = fmt.Errorf("%w: %d bytes after the last entry", ErrCorrupt, len(it.rest))
		}
		return false
	}
	it.left--
	n, w := binary.Uvarint(it.rest)
	if w <= 0 || n > uint64(len(it.rest)-w) {
		it.err = fmt.Errorf("%w: length of an entry", ErrCorrupt)
		return false
	}
	raw := it.rest[w : w+int(n) : w+int(n)]
	it.rest = it.rest[w+int(n):]
	if !it.decode(raw) {
		it.err = fmt.Errorf("%w: inside an entry", ErrCorrupt)
		return false
	}
	return true
}

// Entry is the entry that Next moved to.
func (it *Iterator) Entry() *Entry { return &it.entry }

// Err is what ended the walk; nil at the batch's orderly end.
func (it *Iterator) Err() error { return it.err }

func (it *Iterator) decode(raw []byte) bool {
	it.entry = Entry{Record: Record{Headers: it.entry.Headers[:0]}}
	e := &it.entry
	r := parts.Of(raw)
	attrs := r.Byte()
	delta := r.Uvarint()
	if attrs >= attrJSON<<1 || delta > uint64(it.span) {
		return false
	}
	e.Delta, e.Void, e.Tombstone = int(delta), attrs&attrVoid != 0, attrs&attrTombstone != 0
	if !e.Void && e.Delta >= it.span {
		return false
	}
	if attrs&attrProducer != 0 {
		number := r.Uvarint()
		sequence := r.Uvarint()
		if r.Bad() || number >= uint64(len(it.producers)/16) || sequence > uint64(ident.MaxSequence) {
			return false
		}
		copy(e.Producer[:], it.producers[number*16:])
		e.Sequence = int64(sequence)
	}
	if e.Void {
		return attrs&attrProducer != 0 && r.Done()
	}
	if attrs&attrKey != 0 {
		e.Key = r.Bytes()
	}
	if attrs&attrIdempotency != 0 {
		e.Idempotency = &Idempotency{Principal: string(r.Bytes()), Key: string(r.Bytes())}
		copy(e.Idempotency.Hash[:], r.Take(len(e.Idempotency.Hash)))
	}
	if attrs&attrJSON != 0 {
		e.ContentType = JSON
	} else {
		e.ContentType = string(r.Bytes())
	}
	if attrs&attrHeaders != 0 {
		n := r.Uvarint()
		if n > uint64(len(r.Rest())) { // each costs two bytes at least
			return false
		}
		for range n {
			e.Headers = append(e.Headers, HeaderField{Name: string(r.Bytes()), Value: string(r.Bytes())})
			if r.Bad() {
				return false
			}
		}
	}
	e.Value = r.Rest()
	return !r.Bad()
}

package record

import (
	"encoding/binary"
	"fmt"

	"tidewire/internal/ident"
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
	r := reader{b: raw}
	attrs := r.byte()
	delta := r.uvarint()
	if attrs >= attrJSON<<1 || delta > uint64(it.span) {
		return false
	}
	e.Delta, e.Void, e.Tombstone = int(delta), attrs&attrVoid != 0, attrs&attrTombstone != 0
	if !e.Void && e.Delta >= it.span {
		return false
	}
	if attrs&attrProducer != 0 {
		number := r.uvarint()
		sequence := r.uvarint()
		if r.bad || number >= uint64(len(it.producers)/16) || sequence > uint64(ident.MaxSequence) {
			return false
		}
		copy(e.Producer[:], it.producers[number*16:])
		e.Sequence = int64(sequence)
	}
	if e.Void {
		return !r.bad && attrs&attrProducer != 0 && len(r.b) == 0
	}
	if attrs&attrKey != 0 {
		e.Key = r.bytes()
	}
	if attrs&attrIdempotency != 0 {
		e.Idempotency = &Idempotency{Principal: string(r.bytes()), Key: string(r.bytes())}
		copy(e.Idempotency.Hash[:], r.take(len(e.Idempotency.Hash)))
	}
	if attrs&attrJSON != 0 {
		e.ContentType = JSON
	} else {
		e.ContentType = string(r.bytes())
	}
	if attrs&attrHeaders != 0 {
		n := r.uvarint()
		if n > uint64(len(r.b)) { // each costs two bytes at least
			return false
		}
		for range n {
			e.Headers = append(e.Headers, HeaderField{Name: string(r.bytes()), Value: string(r.bytes())})
			if r.bad {
				return false
			}
		}
	}
	e.Value = r.b
	return !r.bad
}

// reader takes a batch's parts off a slice; after the first fault it gives
// zero values and stays bad.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	v, w := binary.Uvarint(r.b)
	if w <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[w:]
	return v
}

func (r *reader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return nil
	}
	return r.take(int(n))
}

func (r *reader) take(n int) []byte {
	if n > len(r.b) {
		r.bad, r.b = true, nil
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

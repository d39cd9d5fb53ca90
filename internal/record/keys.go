package record

import (
	"encoding/binary"
	"fmt"

	"tidewire/internal/parts"
)

// Keys walks the records of a batch for their places and keys alone: what Entries would
// say, without decoding the rest of them. A key points into the batch; nil: there is none.
// The walk ends where yield says false.
func (b Batch) Keys(yield func(delta int, key []byte) bool) error {
	return b.skim(func(_ []byte, delta int, key []byte) bool { return yield(delta, key) })
}

// Pick makes a batch of some records of b, where they are: offsets in between are missing,
// as after a compaction, and so is what is no record. It is nil where there are none. b is
// a batch that a leader placed.
func (b Batch) Pick(which func(delta int) bool) (Batch, error) {
	var picked [][]byte
	bytes := 0
	err := b.skim(func(raw []byte, delta int, _ []byte) bool {
		if which(delta) {
			picked = append(picked, raw)
			bytes += len(raw)
		}
		return true
	})
	if err != nil || len(picked) == 0 {
		return nil, err
	}
	table := len(b) - HeaderBytes - len(b.Entries().rest)
	out := make(Batch, 0, HeaderBytes+table+bytes)
	out = append(out, b[:HeaderBytes+table]...)
	for _, raw := range picked {
		out = append(out, raw...)
	}
	le := binary.LittleEndian
	le.PutUint32(out[0:], uint32(len(out)))
	le.PutUint32(out[60:], uint32(len(picked)))
	le.PutUint32(out[12:], Checksum(out[HeaderBytes:]))
	le.PutUint32(out[8:], out.headSum())
	return out, nil
}

// skim walks the records of a batch: each as it lies there, its place and its key.
func (b Batch) skim(yield func(raw []byte, delta int, key []byte) bool) error {
	it := b.Entries()
	for it.err == nil && it.left > 0 {
		it.left--
		n, w := binary.Uvarint(it.rest)
		if w <= 0 || n > uint64(len(it.rest)-w) {
			return fmt.Errorf("%w: length of an entry", ErrCorrupt)
		}
		raw := it.rest[:w+int(n)]
		it.rest = it.rest[w+int(n):]
		r := parts.Of(raw[w:])
		attrs, delta := r.Byte(), r.Uvarint()
		if attrs&attrVoid != 0 {
			continue
		}
		if attrs&attrProducer != 0 {
			r.Uvarint()
			r.Uvarint()
		}
		var key []byte
		if attrs&attrKey != 0 {
			key = r.Bytes()
		}
		if r.Bad() || attrs >= attrJSON<<1 || delta >= uint64(it.span) {
			return fmt.Errorf("%w: inside an entry", ErrCorrupt)
		}
		if !yield(raw, int(delta), key) {
			return nil
		}
	}
	return it.err
}

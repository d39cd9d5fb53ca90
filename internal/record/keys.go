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
	it := b.Entries()
	for it.err == nil && it.left > 0 {
		it.left--
		n, w := binary.Uvarint(it.rest)
		if w <= 0 || n > uint64(len(it.rest)-w) {
			return fmt.Errorf("%w: length of an entry", ErrCorrupt)
		}
		r := parts.Of(it.rest[w : w+int(n)])
		it.rest = it.rest[w+int(n):]
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
		if !yield(int(delta), key) {
			return nil
		}
	}
	return it.err
}

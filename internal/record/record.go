package record

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"

	"tidewire/internal/ident"
)

// Record is one record as a producer gave it.
type Record struct {
	Key         []byte // nil: none; never empty otherwise
	Value       []byte // opaque
	Tombstone   bool   // the key's record is deleted; Value is empty
	ContentType string // never empty but for a tombstone
	Headers     []HeaderField
	Producer    ident.ProducerID // zero: none
	Sequence    int64            // of the producer
	Idempotency *Idempotency     // nil: none
}

// HeaderField is one record header; names are stored in lower case, but for the
// system's own.
type HeaderField struct{ Name, Value string }

// Idempotency is the Idempotency-Key of a plain HTTP client.
type Idempotency struct {
	Principal string // whose key it is
	Key       string
	Hash      [16]byte // of the content, to notice another body under the same key
}

// ContentHash is the hash of what a repeat must have in common with the
// original: key, content type and value.
func ContentHash(r *Record) (sum [16]byte) {
	h := sha256.New()
	part(h, r.Key)
	part(h, []byte(r.ContentType))
	part(h, r.Value)
	if r.Tombstone {
		h.Write([]byte{1})
	}
	copy(sum[:], h.Sum(nil))
	return sum
}

func part(h hash.Hash, b []byte) {
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(len(b)))
	h.Write(n[:])
	h.Write(b)
}

// Bytes is the size of a record as its topic's limit counts it: key, value and headers.
func (r *Record) Bytes() int {
	n := len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += len(h.Name) + len(h.Value)
	}
	return n
}

// Entry is one entry of a batch as it is decoded. Its slices point into the
// batch.
type Entry struct {
	Record
	Delta int  // offset minus base offset
	Void  bool // only Producer and Sequence are set
}

const (
	attrKey = 1 << iota
	attrTombstone
	attrProducer
	attrIdempotency
	attrVoid
	attrHeaders
	attrJSON
)

// JSON is the content type that costs no bytes in a batch.
const JSON = "application/json"

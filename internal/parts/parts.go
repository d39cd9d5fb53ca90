// Package parts takes values off the front of bytes, one after another, and is
// safe on any bytes: the first value that is not there makes the reader bad,
// and from then on it gives zero values. So a decoder reads all it wants and
// asks once, at its end, whether that was right.
package parts

import "encoding/binary"

// Reader takes parts off a slice. What it gives points into the slice.
type Reader struct {
	rest []byte
	bad  bool
}

// Of makes a reader of b.
func Of(b []byte) Reader { return Reader{rest: b} }

// Bad reports whether something was missing.
func (r *Reader) Bad() bool { return r.bad }

// Done reports whether everything was there and nothing is left.
func (r *Reader) Done() bool { return !r.bad && len(r.rest) == 0 }

// Rest is what was not taken yet.
func (r *Reader) Rest() []byte { return r.rest }

// Fail makes the reader bad: a value was there, and is not allowed.
func (r *Reader) Fail() { r.rest, r.bad = nil, true }

// Take takes n bytes; nil where there are fewer.
func (r *Reader) Take(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.Fail()
		return nil
	}
	out := r.rest[:n:n]
	r.rest = r.rest[n:]
	return out
}

// Byte takes one byte.
func (r *Reader) Byte() byte {
	if b := r.Take(1); b != nil {
		return b[0]
	}
	return 0
}

// Uvarint takes an unsigned number.
func (r *Reader) Uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.Fail()
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// Varint takes a signed number.
func (r *Reader) Varint() int64 {
	v, n := binary.Varint(r.rest)
	if n <= 0 {
		r.Fail()
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// Bytes takes a number and so many bytes.
func (r *Reader) Bytes() []byte {
	n := r.Uvarint()
	if n > uint64(len(r.rest)) {
		r.Fail()
		return nil
	}
	return r.Take(int(n))
}

// Count takes the number of things that follow, each of at least size bytes, so
// that a number out of nowhere makes nobody allocate.
func (r *Reader) Count(size int) int {
	n := r.Uvarint()
	if n > uint64(len(r.rest)/size) {
		r.Fail()
		return 0
	}
	return int(n)
}

package ident

import (
	"fmt"
	"math/bits"
)

// KeyHash is murmur3-32 with seed 0 over the key's bytes. The same function
// in the SDK and here is held together by the vectors in e2e/conformance.
func KeyHash[T string | []byte](key T) uint32 {
	const c1, c2 = 0xcc9e2d51, 0x1b873593
	var h uint32
	n := len(key)
	i := 0
	for ; i+4 <= n; i += 4 {
		k := uint32(key[i]) | uint32(key[i+1])<<8 | uint32(key[i+2])<<16 | uint32(key[i+3])<<24
		k *= c1
		k = bits.RotateLeft32(k, 15)
		k *= c2
		h ^= k
		h = bits.RotateLeft32(h, 13)
		h = h*5 + 0xe6546b64
	}
	var k uint32
	switch n & 3 {
	case 3:
		k ^= uint32(key[i+2]) << 16
		fallthrough
	case 2:
		k ^= uint32(key[i+1]) << 8
		fallthrough
	case 1:
		k ^= uint32(key[i])
		k *= c1
		k = bits.RotateLeft32(k, 15)
		k *= c2
		h ^= k
	}
	h ^= uint32(n)
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	h ^= h >> 16
	return h
}

// HashSpace is the number of key hashes: ranges lie in [0, HashSpace].
const HashSpace uint64 = 1 << 32

// HashRange is the half-open range [Lo, Hi) of key hashes a partition owns.
type HashRange struct{ Lo, Hi uint64 }

// FullRange covers every key.
var FullRange = HashRange{0, HashSpace}

// Contains reports whether the hash lies in the range.
func (r HashRange) Contains(h uint32) bool { return uint64(h) >= r.Lo && uint64(h) < r.Hi }

// Covers reports whether all of o lies in r.
func (r HashRange) Covers(o HashRange) bool { return o.Lo >= r.Lo && o.Hi <= r.Hi }

// Overlaps reports whether the two share a hash.
func (r HashRange) Overlaps(o HashRange) bool { return o.Lo < r.Hi && r.Lo < o.Hi }

// Valid reports whether the range is not empty and inside the hash space.
func (r HashRange) Valid() bool { return r.Lo < r.Hi && r.Hi <= HashSpace }

func (r HashRange) String() string { return fmt.Sprintf("[%d,%d)", r.Lo, r.Hi) }

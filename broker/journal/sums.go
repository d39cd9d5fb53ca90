package journal

import "tidewire/internal/record"

// sums gives the checksum of any part of a file in next to no time. What lies
// behind a bad frame, or in a file that was used before, is looked through byte
// by byte, and any of these bytes may look like the head of a frame as long as
// the file: reading all of it for each would take minutes, and hours if somebody
// publishes what looks like frames.
//
// The checksum is linear: that of a part follows from those of what lies before
// its beginning and before its end.
type sums struct {
	data   []byte
	prefix []uint32 // of data up to each multiple of sumsEvery, as far as asked for
}

const sumsEvery = 1024

// upTo is the checksum of the first n bytes.
func (s *sums) upTo(n int64) uint32 {
	k := n / sumsEvery
	for i := int64(len(s.prefix)); i <= k; i++ {
		if i == 0 {
			s.prefix = append(s.prefix, record.Checksum(nil))
			continue
		}
		s.prefix = append(s.prefix, record.ChecksumMore(s.prefix[i-1], s.data[(i-1)*sumsEvery:i*sumsEvery]))
	}
	return record.ChecksumMore(s.prefix[k], s.data[k*sumsEvery:n])
}

// more is record.ChecksumMore(sum, data[from:to]).
func (s *sums) more(sum uint32, from, to int64) uint32 {
	return s.upTo(to) ^ times(xToThe8n(to-from), sum^s.upTo(from))
}

// Polynomials over GF(2) modulo that of CRC-32C, the highest bit being x⁰.
const (
	castagnoli = 0x82f63b78
	one        = 1 << 31
)

func times(a, b uint32) (p uint32) {
	for ; a != 0; a <<= 1 {
		if a&one != 0 {
			p ^= b
		}
		low := b & 1
		b >>= 1
		if low != 0 {
			b ^= castagnoli
		}
	}
	return p
}

// xToThe8n is what n bytes behind it multiply a checksum with.
func xToThe8n(n int64) uint32 {
	p, square := uint32(one), uint32(one>>8)
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			p = times(square, p)
		}
		square = times(square, square)
	}
	return p
}

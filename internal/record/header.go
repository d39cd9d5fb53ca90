package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"tidewire/internal/ident"
)

const (
	// HeaderBytes is the size of a batch's header.
	HeaderBytes = 64
	// Version of the format that this package writes and reads.
	Version = 1
	// MaxBatchBytes bounds a batch: the largest message with room for its
	// key, headers and framing.
	MaxBatchBytes = 20 << 20
	// MaxEntries bounds the entries of one batch.
	MaxEntries = 1 << 16
)

// ErrCorrupt marks bytes that are not what a leader once wrote.
var ErrCorrupt = errors.New("corrupt batch")

// ErrShort marks a batch that goes on past the bytes at hand.
var ErrShort = errors.New("batch is cut short")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum is CRC-32C, the checksum of everything this system keeps.
func Checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// ChecksumMore continues a Checksum over more bytes.
func ChecksumMore(sum uint32, b []byte) uint32 { return crc32.Update(sum, castagnoli, b) }

// Header is the fixed part of a batch.
type Header struct {
	Length    int // bytes of the whole batch
	Partition ident.Partition
	Epoch     ident.Epoch
	Base      ident.Offset
	Timestamp int64 // ms since 1970
	Span      int   // offsets occupied; 0 for voids alone
	Entries   int
}

// Next is the offset after the batch.
func (h Header) Next() ident.Offset { return h.Base + ident.Offset(h.Span) }

// Place is what the leader adds to a batch.
type Place struct {
	Partition ident.Partition
	Epoch     ident.Epoch
	Base      ident.Offset
	Timestamp int64 // ms since 1970
}

// Batch is one whole encoded batch.
type Batch []byte

// ParseHeader reads the header at the front of b and checks its bounds, not
// its checksums. It fails with ErrShort when b ends inside the header.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderBytes {
		return Header{}, ErrShort
	}
	h := Batch(b).Header()
	switch {
	case h.Length < HeaderBytes+1 || h.Length > MaxBatchBytes:
		return Header{}, fmt.Errorf("%w: length %d", ErrCorrupt, h.Length)
	case b[4] != Version:
		return Header{}, fmt.Errorf("%w: format version %d, this program reads %d", ErrCorrupt, b[4], Version)
	case b[5] != 0 || b[6] != 0 || b[7] != 0:
		return Header{}, fmt.Errorf("%w: unknown flags", ErrCorrupt)
	case h.Base < 0 || h.Entries < 1 || h.Entries > MaxEntries:
		return Header{}, fmt.Errorf("%w: base %d, entries %d", ErrCorrupt, h.Base, h.Entries)
	}
	return h, nil
}

// Header decodes the header of a batch of at least HeaderBytes.
func (b Batch) Header() Header {
	le := binary.LittleEndian
	h := Header{
		Length:    int(le.Uint32(b[0:])),
		Epoch:     ident.Epoch(le.Uint32(b[36:])),
		Base:      ident.Offset(le.Uint64(b[40:])),
		Timestamp: int64(le.Uint64(b[48:])),
		Span:      int(le.Uint32(b[56:])),
		Entries:   int(le.Uint32(b[60:])),
	}
	h.Partition.Index = ident.Index(le.Uint32(b[32:]))
	copy(h.Partition.Topic[:], b[16:32])
	return h
}

// Assign writes the leader's part of the header and seals it. The batch must
// not be shared yet.
func (b Batch) Assign(p Place) {
	le := binary.LittleEndian
	copy(b[16:32], p.Partition.Topic[:])
	le.PutUint32(b[32:], uint32(p.Partition.Index))
	le.PutUint32(b[36:], uint32(p.Epoch))
	le.PutUint64(b[40:], uint64(p.Base))
	le.PutUint64(b[48:], uint64(p.Timestamp))
	le.PutUint32(b[8:], b.headSum())
}

func (b Batch) headSum() uint32 {
	return ChecksumMore(Checksum(b[:8]), b[12:HeaderBytes])
}

// Verify checks bounds and both checksums of a whole batch.
func (b Batch) Verify() error {
	h, err := ParseHeader(b)
	if err != nil {
		return err
	}
	if h.Length != len(b) {
		return fmt.Errorf("%w: length %d in %d bytes", ErrCorrupt, h.Length, len(b))
	}
	if got, want := b.headSum(), binary.LittleEndian.Uint32(b[8:]); got != want {
		return fmt.Errorf("%w: header checksum %08x, want %08x", ErrCorrupt, got, want)
	}
	return b.VerifyBody()
}

// VerifyBody checks the gateway's checksum alone: all that can be checked
// before the leader has placed the batch.
func (b Batch) VerifyBody() error {
	if len(b) < HeaderBytes {
		return ErrShort
	}
	if got, want := Checksum(b[HeaderBytes:]), binary.LittleEndian.Uint32(b[12:]); got != want {
		return fmt.Errorf("%w: body checksum %08x, want %08x", ErrCorrupt, got, want)
	}
	return nil
}

// Cut takes the first batch off b. It checks bounds, not checksums; ErrShort
// says that b ends inside the batch.
func Cut(b []byte) (first Batch, rest []byte, err error) {
	h, err := ParseHeader(b)
	if err != nil {
		return nil, b, err
	}
	if h.Length > len(b) {
		return nil, b, ErrShort
	}
	return Batch(b[:h.Length:h.Length]), b[h.Length:], nil
}

package journal

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"

	"tidewire/internal/ident"
	"tidewire/internal/record"
)

const (
	magic         = "TWJOURNL"
	formatVersion = 1
	headBytes     = 64
	firstFrame    = 4096 // the head has a page of its own: it is never written again
	frameHead     = 32
	entryHead     = 8
	suffix        = ".journal"
	spareName     = "spare.tmp"

	// MinFileBytes is the smallest size of a journal file.
	MinFileBytes = firstFrame + 1024
	maxFileBytes = math.MaxUint32
)

// Position is a place in the journal; see the package comment.
type Position uint64

func at(file uint64, offset int64) Position { return Position(file<<32 | uint64(offset)) }

// File is the sequence of the file a position lies in.
func (p Position) File() uint64 { return uint64(p) >> 32 }

// Offset is the byte in that file.
func (p Position) Offset() int64 { return int64(uint32(p)) }

func (p Position) String() string { return fmt.Sprintf("%d+%d", p.File(), p.Offset()) }

// Cut is a boundary between two frames: where the next one begins, and its
// sequence.
type Cut struct {
	At    Position
	Frame uint64
}

// Type says what an entry is. The journal itself knows Checkpoint alone.
type Type uint8

// Checkpoint is the type of the entry from which recovery starts. Its payload
// begins with an encoded Cut: everything before that is in the segments.
const Checkpoint Type = 1

// cutBytes is the size of an encoded Cut.
const cutBytes = 16

// AppendCut encodes a cut, as a checkpoint begins with it.
func AppendCut(b []byte, c Cut) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(c.At))
	return binary.LittleEndian.AppendUint64(b, c.Frame)
}

// TakeCut decodes a cut at the front of a checkpoint.
func TakeCut(b []byte) (c Cut, rest []byte, ok bool) {
	if len(b) < cutBytes {
		return Cut{}, nil, false
	}
	le := binary.LittleEndian
	return Cut{Position(le.Uint64(b)), le.Uint64(b[8:])}, b[cutBytes:], true
}

type salt [16]byte

type head struct {
	size    int64
	file    uint64
	salt    salt
	storage ident.StorageID
}

func (h head) encode() []byte {
	b := make([]byte, headBytes)
	le := binary.LittleEndian
	copy(b, magic)
	le.PutUint32(b[8:], formatVersion)
	le.PutUint64(b[16:], uint64(h.size))
	le.PutUint64(b[24:], h.file)
	copy(b[32:48], h.salt[:])
	copy(b[48:64], h.storage[:])
	le.PutUint32(b[12:], record.Checksum(b[16:]))
	return b
}

func decodeHead(b []byte) (head, error) {
	le := binary.LittleEndian
	if len(b) < headBytes {
		return head{}, fmt.Errorf("%d bytes, shorter than the head of a journal file", len(b))
	}
	b = b[:headBytes]
	if string(b[:8]) != magic {
		return head{}, fmt.Errorf("not a journal file: it begins with %q", b[:8])
	}
	if v := le.Uint32(b[8:]); v != formatVersion {
		return head{}, fmt.Errorf("format version %d, this program reads %d", v, formatVersion)
	}
	if record.Checksum(b[16:]) != le.Uint32(b[12:]) {
		return head{}, fmt.Errorf("checksum of the head is wrong")
	}
	h := head{size: int64(le.Uint64(b[16:])), file: le.Uint64(b[24:])}
	copy(h.salt[:], b[32:])
	copy(h.storage[:], b[48:])
	if h.size < firstFrame || h.size > maxFileBytes || h.file == 0 || h.file > math.MaxUint32 {
		return head{}, fmt.Errorf("size %d, sequence %d are out of range", h.size, h.file)
	}
	return h, nil
}

type frame struct {
	offset int64 // in its file
	bytes  int64
	seq    uint64
	mark   uint64
}

// seal writes the header of a frame whose entries are in place.
func seal(b []byte, s salt, seq, mark uint64, entries int) {
	le := binary.LittleEndian
	le.PutUint32(b, uint32(len(b)))
	le.PutUint64(b[8:], seq)
	le.PutUint64(b[16:], mark)
	le.PutUint32(b[24:], uint32(entries))
	le.PutUint32(b[28:], 0)
	le.PutUint32(b[4:], frameSum(b, s))
}

func frameSum(b []byte, s salt) uint32 {
	return record.ChecksumMore(record.Checksum(s[:]), b[8:])
}

// parseFrame reads the frame at the front of b; the sum is checked, too.
func parseFrame(b []byte, s salt) (frame, bool) {
	f, sum, ok := parseHead(b)
	return f, ok && frameSum(b[:f.bytes], s) == sum
}

// parseHead reads the head of the frame at the front of b. The first entry has
// to be one, which almost nothing but a frame passes.
func parseHead(b []byte) (f frame, sum uint32, ok bool) {
	if len(b) < frameHead {
		return frame{}, 0, false
	}
	le := binary.LittleEndian
	n := int64(le.Uint32(b))
	if n < frameHead || n > int64(len(b)) {
		return frame{}, 0, false
	}
	f = frame{bytes: n, seq: le.Uint64(b[8:]), mark: le.Uint64(b[16:])}
	if f.seq == 0 || f.mark > f.seq || f.mark == 0 {
		return frame{}, 0, false
	}
	count, left := int64(le.Uint32(b[24:])), n-frameHead
	if count*entryHead > left || count == 0 && left > 0 {
		return frame{}, 0, false
	}
	if count > 0 {
		first := b[frameHead:]
		if size := entryHead + int64(le.Uint32(first[4:])); first[0] == 0 || first[1]|first[2]|first[3] != 0 ||
			size > left || count == 1 && size != left {
			return frame{}, 0, false
		}
	}
	return f, le.Uint32(b[4:]), true
}

func appendEntry(b []byte, t Type, payload []byte) []byte {
	b = append(b, byte(t), 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	return append(b, payload...)
}

// entries walks a frame's entries. end is the offset behind the entry, counted
// from the frame's beginning.
func entries(b []byte, visit func(end int64, t Type, payload []byte) error) error {
	le := binary.LittleEndian
	count := le.Uint32(b[24:])
	off := frameHead
	for range count {
		if len(b)-off < entryHead || b[off] == 0 || b[off+1]|b[off+2]|b[off+3] != 0 {
			return fmt.Errorf("entry at byte %d of a frame is malformed", off)
		}
		n := int64(le.Uint32(b[off+4:]))
		if n > int64(len(b)-off-entryHead) {
			return fmt.Errorf("entry at byte %d of a frame is longer than the frame", off)
		}
		start := off + entryHead
		off = start + int(n)
		if err := visit(int64(off), Type(b[start-entryHead]), b[start:off:off]); err != nil {
			return err
		}
	}
	if off != len(b) {
		return fmt.Errorf("a frame of %d bytes has entries of %d bytes", len(b), off)
	}
	return nil
}

func fileName(seq uint64) string { return fmt.Sprintf("%020d%s", seq, suffix) }

func parseName(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil && n > 0 && n <= math.MaxUint32
}

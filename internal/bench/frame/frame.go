package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Opcodes.
const (
	Text   = 0x1
	Binary = 0x2
	Close  = 0x8
	Ping   = 0x9
	Pong   = 0xA
)

// MaxPayload bounds what is taken for a frame; more is taken for nonsense.
const MaxPayload = 32 << 20

// Frame is one frame of a server. Its payload points into what was parsed.
type Frame struct {
	Op      byte
	Payload []byte
	Size    int // with its head
}

var errFragment = errors.New("the server sent a fragment or used an extension nobody asked for")

// Parse finds the first frame of b; whole is false where more bytes are needed.
func Parse(b []byte) (f Frame, whole bool, err error) {
	if len(b) < 2 {
		return f, false, nil
	}
	if b[0]&0xF0 != 0x80 {
		return f, false, errFragment
	}
	if b[1]&0x80 != 0 {
		return f, false, errors.New("the server sent a masked frame")
	}
	n, head := uint64(b[1]), 2
	switch n {
	case 126:
		if len(b) < 4 {
			return f, false, nil
		}
		n, head = uint64(binary.BigEndian.Uint16(b[2:])), 4
	case 127:
		if len(b) < 10 {
			return f, false, nil
		}
		n, head = binary.BigEndian.Uint64(b[2:]), 10
	}
	if n > MaxPayload {
		return f, false, fmt.Errorf("the server sent a frame of %d bytes", n)
	}
	if uint64(len(b)-head) < n {
		return f, false, nil
	}
	size := head + int(n)
	return Frame{Op: b[0] & 0x0F, Payload: b[head:size], Size: size}, true, nil
}

// Append writes a client's frame.
func Append(dst []byte, op byte, payload []byte, key [4]byte) []byte {
	dst = append(dst, 0x80|op)
	switch n := len(payload); {
	case n < 126:
		dst = append(dst, 0x80|byte(n))
	case n < 1<<16:
		dst = append(dst, 0x80|126)
		dst = binary.BigEndian.AppendUint16(dst, uint16(n))
	default:
		dst = append(dst, 0x80|127)
		dst = binary.BigEndian.AppendUint64(dst, uint64(n))
	}
	dst = append(dst, key[:]...)
	for i, c := range payload {
		dst = append(dst, c^key[i&3])
	}
	return dst
}

// CloseCode is the code of a close frame; 1005 where it has none.
func CloseCode(payload []byte) int {
	if len(payload) < 2 {
		return 1005
	}
	return int(binary.BigEndian.Uint16(payload))
}

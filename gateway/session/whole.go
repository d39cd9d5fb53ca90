package session

import "encoding/binary"

// whole is a text frame that has come whole, which most have: its text, unmasked where
// it is, and the bytes of the frame, to be skipped then. Size 0: whatever comes next is the
// library's, whose reader costs several times as much.
func (s *socket) whole(most int) (text []byte, size int) {
	b := s.ahead
	if s.in.Buffered() > 0 || len(b) < maskedHead || b[0] != opText || b[1] < masked {
		return nil, 0
	}
	head, n := 2, int(b[1]-masked)
	switch n {
	case 126:
		head, n = 4, int(binary.BigEndian.Uint16(b[2:]))
	case 127: // there is no room for so much
		return nil, 0
	}
	size = head + 4 + n
	if n > most || size > len(b) {
		return nil, 0
	}
	text = b[head+4 : size]
	unmask(text, b[head:head+4])
	return text, size
}

func unmask(b, key []byte) {
	once := uint64(binary.LittleEndian.Uint32(key))
	for twice := once | once<<32; len(b) >= 8; b = b[8:] {
		binary.LittleEndian.PutUint64(b, binary.LittleEndian.Uint64(b)^twice)
	}
	for i := range b {
		b[i] ^= key[i%4]
	}
}

package session

import (
	"encoding/binary"
	"slices"

	"tidewire/gateway/deliver"
	"tidewire/internal/wire"
)

// Frames begin with at most this many bytes before the payload.
const headBytes = 10

// Opcodes with the final bit, as turns send them.
const (
	opText  = 0x81
	opPing  = 0x89
	opPong  = 0x8A
	opClose = 0x88
)

func appendControl(b []byte, op byte, payload []byte) []byte {
	return append(append(b, op, byte(len(payload))), payload...)
}

// sealText writes the head of a text frame whose payload begins at headBytes of
// b, and returns the whole frame.
func sealText(b []byte) []byte {
	n := len(b) - headBytes
	start := headBytes
	switch {
	case n < 126:
		start -= 2
		b[start+1] = byte(n)
	case n < 1<<16:
		start -= 4
		b[start+1] = 126
		binary.BigEndian.PutUint16(b[start+2:], uint16(n))
	default:
		start -= 10
		b[start+1] = 127
		binary.BigEndian.PutUint64(b[start+2:], uint64(n))
	}
	b[start] = opText
	return b[start:]
}

func (d *desk) reset() {
	d.control = d.control[:0]
	clear(d.runs)
	d.runs = d.runs[:0]
	if d.frame = d.frame[:headBytes]; cap(d.frame) > 4*frameBytes {
		d.frame = make([]byte, headBytes, 2*frameBytes) // one large message is no reason to keep the room
	}
	d.common = nil
}

// line adds a line, or several, to the frame.
func (d *desk) line(line []byte) {
	d.spell()
	if len(d.frame) > headBytes {
		d.frame = append(d.frame, '\n')
	}
	d.frame = append(d.frame, line...)
}

// messages adds a subscription's runs to the frame.
func (d *desk) messages(x *subscription, count int) {
	if count == 0 {
		return
	}
	if len(d.frame) == headBytes && d.common == nil && d.shared.holds(x.name, d.turn) {
		d.common = d.shared.frame
	} else {
		alone := len(d.frame) == headBytes && d.common == nil
		d.spell()
		d.head = wire.Open(d.head[:0], "messages").Str("sub", x.name).Int("count", int64(count)).Close()
		d.line(d.head)
		for _, r := range d.turn {
			d.frame = append(d.frame, r.Lines()...)
		}
		if alone {
			d.shared.keep(x.name, d.turn, d.frame)
		}
	}
	d.runs = append(d.runs, d.turn...)
	clear(d.turn)
	d.turn = d.turn[:0]
}

// spell writes out what the frame has in common with others, because something
// else goes into it.
func (d *desk) spell() {
	if d.common == nil {
		return
	}
	d.common = nil
	d.frame = append(d.frame[:headBytes], d.shared.payload()...)
}

// take is all that is to be written, as bytes of its own.
func (d *desk) take() []byte {
	return slices.Concat(d.control, d.text())
}

// text is the text frame; empty where there is none.
func (d *desk) text() []byte {
	switch {
	case d.common != nil:
		return d.common
	case len(d.frame) == headBytes:
		return nil
	}
	return sealText(d.frame)
}

// sharedFrame is the frame of messages that was made last. Subscribers that
// keep pace stand at the same place, so the next one mostly gets the same.
type sharedFrame struct {
	name  string
	runs  []deliver.Run
	buf   []byte
	frame []byte // whole, in buf
}

func (f *sharedFrame) holds(name string, runs []deliver.Run) bool {
	return f.frame != nil && f.name == name && slices.Equal(f.runs, runs)
}

// keep remembers a frame of these runs alone.
func (f *sharedFrame) keep(name string, runs []deliver.Run, frame []byte) {
	f.name = name
	clear(f.runs)
	f.runs = append(f.runs[:0], runs...)
	if f.buf = append(f.buf[:0], frame...); cap(f.buf) > 4*frameBytes {
		*f = sharedFrame{}
		return
	}
	f.frame = sealText(f.buf)
}

func (f *sharedFrame) payload() []byte { return f.buf[headBytes:] }

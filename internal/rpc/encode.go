package rpc

import (
	"encoding/binary"
	"net"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"tidewire/internal/ident"
	"tidewire/internal/rpc/tidewirepb"
)

// referFrom is how long bytes are at least that a message refers to instead of
// copying them. A piece of its own costs the writer about as much as copying so much.
const referFrom = 8 << 10

// encoder writes one message in the wire format of protobuf, with room before it for
// the head of a frame. What the generated code would do in two walks over objects made
// for it, this does in one over the values themselves, and it copies no large bytes.
// It is used again for the next message, once that one was written.
type encoder struct {
	b        []byte
	refers   []reference
	referred int         // bytes of them
	parts    net.Buffers // of the message in hand
}

// reference is bytes that belong into a message, and where.
type reference struct {
	at    int // of encoder.b
	bytes []byte
}

// keptBytes bounds the room that an encoder keeps for its next message.
const keptBytes = 1 << 20

func (e *encoder) begin() {
	if cap(e.b) > keptBytes {
		e.b = nil
	}
	if e.b == nil {
		e.b = make([]byte, 0, 512)
	}
	clear(e.refers)
	e.b, e.refers, e.referred = e.b[:frameHead], e.refers[:0], 0
}

// varint writes a number; zero is what a field is that is not there.
func (e *encoder) varint(field protowire.Number, v uint64) {
	if v == 0 {
		return
	}
	e.b = protowire.AppendTag(e.b, field, protowire.VarintType)
	e.b = protowire.AppendVarint(e.b, v)
}

func (e *encoder) bool(field protowire.Number, v bool) { e.varint(field, protowire.EncodeBool(v)) }

func (e *encoder) bytes(field protowire.Number, v []byte) {
	if len(v) == 0 {
		return
	}
	e.b = protowire.AppendTag(e.b, field, protowire.BytesType)
	e.b = protowire.AppendVarint(e.b, uint64(len(v)))
	if len(v) < referFrom {
		e.b = append(e.b, v...)
		return
	}
	e.refers = append(e.refers, reference{len(e.b), v})
	e.referred += len(v)
}

// opened is a message within the message, whose length is written when it ends.
type opened struct{ at, referred int }

// lengthBytes hold the length of an inner message, whatever it is: leading
// zeros are allowed in a varint.
const lengthBytes = 4

func (e *encoder) open(field protowire.Number) opened {
	e.b = protowire.AppendTag(e.b, field, protowire.BytesType)
	e.b = append(e.b, make([]byte, lengthBytes)...)
	return opened{len(e.b), e.referred}
}

func (e *encoder) close(o opened) {
	n := len(e.b) - o.at + e.referred - o.referred
	for i := range lengthBytes {
		e.b[o.at-lengthBytes+i] = byte(n) | 0x80
		n >>= 7
	}
	e.b[o.at-1] &= 0x7f
}

// small is open for what is shorter than 128 bytes.
func (e *encoder) small(field protowire.Number) int {
	e.b = protowire.AppendTag(e.b, field, protowire.BytesType)
	e.b = append(e.b, 0)
	return len(e.b)
}

func (e *encoder) end(at int) { e.b[at-1] = byte(len(e.b) - at) }

func (e *encoder) partition(field protowire.Number, p ident.Partition) {
	at := e.small(field)
	e.b = protowire.AppendTag(e.b, 1, protowire.BytesType)
	e.b = append(e.b, byte(len(p.Topic)))
	e.b = append(e.b, p.Topic[:]...)
	e.varint(2, uint64(p.Index))
	e.end(at)
}

// problem is rare, and written by the generated code.
func (e *encoder) problem(field protowire.Number, err error) {
	if err == nil {
		return
	}
	b, failed := proto.Marshal(problemOf(err))
	if failed != nil {
		b, _ = proto.Marshal(&tidewirepb.Problem{Code: "internal"})
	}
	e.b = protowire.AppendTag(e.b, field, protowire.BytesType)
	e.b = protowire.AppendBytes(e.b, b)
}

// len is of the message alone.
func (e *encoder) len() int { return len(e.b) - frameHead + e.referred }

// message is the whole of it in pieces, without the head of a frame.
func (e *encoder) message() net.Buffers { return e.pieces(frameHead) }

// frame is the message behind a head.
func (e *encoder) frame(kind byte) net.Buffers {
	e.b[0] = kind
	binary.BigEndian.PutUint32(e.b[1:], uint32(e.len()))
	return e.pieces(0)
}

func (e *encoder) pieces(from int) net.Buffers {
	e.parts = e.parts[:0]
	for _, r := range e.refers {
		if r.at > from {
			e.parts = append(e.parts, e.b[from:r.at])
		}
		e.parts = append(e.parts, r.bytes)
		from = r.at
	}
	if from < len(e.b) {
		e.parts = append(e.parts, e.b[from:])
	}
	return e.parts
}

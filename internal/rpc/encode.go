package rpc

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"tidewire/internal/ident"
	"tidewire/internal/rpc/tidewirepb"
)

// referFrom is how long bytes are at least that a message refers to instead of
// copying them. A piece of its own costs the writer about as much as copying so much.
const referFrom = 8 << 10

// encoder writes one message in the wire format of protobuf. What the generated code
// would do in two walks over objects made for it, this does in one over the values
// themselves, and it copies no large bytes.
type encoder struct {
	b        []byte
	parts    mem.BufferSlice // pieces that are done: of b, and bytes referred to
	done     int             // so much of b is in parts
	referred int             // bytes referred to
	pooled   *[]byte         // what b lies in, if the transport is to give it back
}

// begin makes room for a message that takes up to so many bytes beside those that it
// refers to. The encoder may be used again once its message was handed on.
func (e *encoder) begin(size int) {
	*e = encoder{}
	if mem.IsBelowBufferPoolingThreshold(size) {
		e.b = make([]byte, 0, size)
		return
	}
	e.pooled = mem.DefaultBufferPool().Get(size)
	e.b = (*e.pooled)[:0]
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
	e.piece()
	e.parts = append(e.parts, mem.SliceBuffer(v))
	e.referred += len(v)
}

func (e *encoder) piece() {
	if len(e.b) > e.done {
		e.parts = append(e.parts, mem.SliceBuffer(e.b[e.done:len(e.b):len(e.b)]))
		e.done = len(e.b)
	}
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

// message is the whole, as the transport takes it.
func (e *encoder) message() mem.BufferSlice {
	switch {
	case len(e.parts) > 0: // they lie in it, each for itself
		e.piece()
		return e.parts
	case e.pooled != nil:
		*e.pooled = e.b
		return mem.BufferSlice{mem.NewBuffer(e.pooled, mem.DefaultBufferPool())}
	}
	return mem.BufferSlice{mem.SliceBuffer(e.b)}
}

func (e *encoder) len() int { return len(e.b) + e.referred }

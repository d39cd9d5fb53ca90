package rpc

import (
	"fmt"
)

// preface begins a connection that carries one stream, and tells it from one of gRPC,
// which begins with "PRI ". The last byte is the version of the frames. Of a frame that
// ends a stream, all versions read what this one writes.
const (
	prefaceMark    = "TWS"
	prefaceVersion = 1
	preface        = prefaceMark + "\x01"
)

// The streams that go over connections of their own.
const (
	methodAppend = "Broker/Append"
	methodFollow = "Broker/Follow"
)

// opening is tidewirepb.StreamOpen.
type opening struct {
	method string
	caller string // an identity
}

func (o *opening) encode(e *encoder) {
	e.begin()
	e.bytes(1, []byte(o.method))
	e.bytes(2, []byte(o.caller))
}

func (o *opening) decode(b []byte) error {
	d := decoder{rest: b}
	for d.next() {
		switch d.field {
		case 1:
			o.method = string(d.b)
		case 2:
			o.caller = string(d.b)
		}
	}
	return d.err
}

// ending is tidewirepb.StreamEnd: why the other end ended a stream.
type ending struct {
	problem error  // nil: all is done
	refused bool   // nothing of the stream was read
	taken   uint64 // of appends: the id of the last batch that was taken in; later ones never reached a log
}

func (m *ending) Error() string {
	if m.problem == nil {
		return "the other end ended the stream"
	}
	return m.problem.Error()
}

func (m *ending) encode(e *encoder) {
	e.begin()
	e.problem(1, m.problem)
	e.bool(2, m.refused)
	e.varint(3, m.taken)
}

func (m *ending) decode(b []byte) error {
	d := decoder{rest: b}
	for d.next() {
		switch d.field {
		case 1:
			m.problem = d.problem()
		case 2:
			m.refused = d.v != 0
		case 3:
			m.taken = d.v
		}
	}
	return d.err
}

// readEnding is the error that an end frame says.
func readEnding(b []byte) error {
	m := &ending{}
	if err := m.decode(b); err != nil {
		return fmt.Errorf("the end of a stream cannot be read: %w", err)
	}
	return m
}

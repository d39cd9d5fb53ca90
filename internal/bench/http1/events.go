package http1

import (
	"bytes"
	"fmt"
)

// Reader gets the events of a stream.
type Reader interface {
	// Event gets one event; the name is empty where it had none. Both point into
	// what was fed.
	Event(name, data []byte) error
}

// Events finds server-sent events in the body of an answer, chunked or not. It
// keeps nothing between events but the part of one that has come.
type Events struct {
	to      Reader
	chunked bool
	chunks  Chunks
	part    []byte // an event that is not whole yet
	id      []byte // the last one
}

// maxEvent bounds an event.
const maxEvent = 32 << 20

// NewEvents makes a finder of the events of an answer with such a head.
func NewEvents(h Head, to Reader) *Events { return &Events{to: to, chunked: h.Chunked} }

// ID is the last id of the stream, that of the event under way included: where to
// resume. It is good until the next Feed.
func (e *Events) ID() []byte { return e.id }

// Feed takes bytes of the body and gives the events in them away.
func (e *Events) Feed(b []byte) (used int, err error) {
	if !e.chunked {
		return len(b), e.body(b)
	}
	for {
		data, n, err := e.chunks.Next(b[used:])
		if err != nil || n == 0 {
			return used, err
		}
		used += n
		if err := e.body(data); err != nil {
			return used, err
		}
	}
}

var eventEnd = []byte("\n\n")

func (e *Events) body(b []byte) error {
	if len(e.part) > 0 {
		// The end may lie across the two.
		from := max(0, len(e.part)-1)
		e.part = append(e.part, b...)
		if len(e.part) > maxEvent {
			return fmt.Errorf("an event is longer than %d bytes", maxEvent)
		}
		if !bytes.Contains(e.part[from:], eventEnd) {
			return nil
		}
		b = e.part
	}
	for {
		end := bytes.Index(b, eventEnd)
		if end < 0 {
			break
		}
		if err := e.event(b[:end]); err != nil {
			return err
		}
		b = b[end+len(eventEnd):]
	}
	e.part = append(e.part[:0], b...)
	if len(b) == 0 && cap(e.part) > 4<<10 {
		e.part = nil // thousands of these are held
	}
	return nil
}

// event takes one event apart: lines of a field and a value each, as this
// project's server writes them, one data line an event.
func (e *Events) event(b []byte) error {
	var name, data []byte
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte{'\n'})
		if value, ok := bytes.CutPrefix(line, []byte("event: ")); ok {
			name = value
		} else if value, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			data = value
		} else if value, ok := bytes.CutPrefix(line, []byte("id: ")); ok {
			e.id = append(e.id[:0], value...)
		}
	}
	if data == nil {
		return nil // an id alone, a comment, a retry
	}
	return e.to.Event(name, data)
}

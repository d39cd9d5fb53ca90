package session

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/coder/websocket"

	"tidewire/gateway/reply"
	"tidewire/internal/fault"
	"tidewire/internal/wire"
)

// read takes in frames until the connection ends. The error is what ended it.
func (s *session) read(ctx context.Context) error {
	var buf []byte
	for {
		s.reading.Store(true)
		kind, r, err := s.ws.Reader(ctx)
		if err != nil {
			return err
		}
		if kind != websocket.MessageText {
			s.shut(reply.CloseProtocol, "binary frames are not taken: send JSON in text frames")
			return s.linger()
		}
		var whole bool
		if buf, whole, err = readAll(buf[:0], r, s.m.cfg.MaxFrameBytes); err != nil {
			return err
		}
		if !whole {
			s.shut(reply.CloseTooBig, fmt.Sprintf("a frame is larger than max_frame_bytes (%d)", s.m.cfg.MaxFrameBytes))
			return s.linger()
		}
		s.reading.Store(false) // from here on it is us who keep the client waiting
		if !utf8.Valid(buf) {
			s.shut(reply.CloseProtocol, "a text frame is not UTF-8")
			return s.linger()
		}
		if !s.lines(ctx, buf) {
			return s.linger()
		}
		if cap(buf) > keepBytes {
			buf = nil // one large frame is no reason to keep its room
		}
	}
}

// keepBytes is how much room a reader keeps from frame to frame.
const keepBytes = 64 << 10

// linger waits for the writer to close the connection.
func (s *session) linger() error {
	<-s.ended
	return nil
}

// lines takes in the lines of a frame. It is false when the connection is to
// end.
func (s *session) lines(ctx context.Context, frame []byte) bool {
	empty := true
	for len(frame) > 0 {
		line, rest, _ := bytes.Cut(frame, []byte{'\n'})
		frame = rest
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		empty = false
		if !s.line(ctx, line) {
			return false
		}
	}
	return !empty || s.badLine(0, fault.New(fault.Invalid, "a frame holds at least one line; a line is one JSON object with \"op\" and \"id\""))
}

// line takes in one line.
func (s *session) line(ctx context.Context, line []byte) bool {
	if !s.roomy() {
		return false
	}
	f, err := wire.ParseFrame(line)
	if err != nil {
		if f.Op == "publish" && f.Publication.Sequenced() {
			s.void(&f, err)
			return s.countBad()
		}
		return s.badLine(f.ID, err)
	}
	s.bad = 0
	s.m.metrics.lines.WithLabelValues(f.Op).Inc()
	if err = s.greeted(f.Op); err == nil {
		err = handlers[f.Op](s, ctx, &f)
	}
	if err != nil {
		s.push(reply.Frame(f.ID, s.refused(err)))
	}
	return true
}

// badLine answers a line that is none of the protocol.
func (s *session) badLine(id int64, err error) bool {
	s.push(reply.Frame(id, err))
	return s.countBad()
}

func (s *session) countBad() bool {
	s.m.metrics.badLines.Inc()
	if s.bad++; s.bad < maxBadLines {
		return true
	}
	s.shut(reply.CloseProtocol, "20 bad lines in a row")
	return false
}

// readAll reads a frame into b, as long as it has at most the given number of
// bytes; whole is false where it has more.
func readAll(b []byte, r io.Reader, most int) (_ []byte, whole bool, err error) {
	for len(b) <= most {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err == io.EOF {
			return b, len(b) <= most, nil
		}
		if err != nil {
			return b, false, err
		}
	}
	return b, false, nil
}

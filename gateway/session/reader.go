package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"unicode/utf8"

	"github.com/coder/websocket"

	"tidewire/gateway/reply"
	"tidewire/internal/fault"
	"tidewire/internal/wire"
)

// errIdle says that the client has sent a sign of life and nothing else.
var errIdle = errors.New("the connection is idle")

// read takes in frames until the connection ends. The error is what ended it, or
// errIdle.
func (s *session) read() error {
	for {
		s.reading.Store(true)
		s.socket.await()
		if s.controls() {
			return errIdle
		}
		if err := s.frames(); err != nil {
			return err
		}
	}
}

// frames takes in what has come, frame by frame.
func (s *session) frames() error {
	room := frameRoom.Get().(*[]byte)
	defer func() {
		if cap(*room) <= keepBytes { // one large frame is no reason to keep its room
			frameRoom.Put(room)
		}
	}()
	for first := true; first || s.socket.pending(); first = false {
		s.reading.Store(true)
		if text, size := s.socket.whole(s.m.cfg.MaxFrameBytes); size > 0 {
			// A copy: who has to wait with it holds no more than the frame.
			*room = append((*room)[:0], text...)
			if s.socket.skip(size); !s.text(*room) {
				return s.linger(bytes.NewReader(nil))
			}
			continue
		}
		kind, r, err := s.ws.Reader(context.Background()) // closing the socket ends it
		if err != nil {
			return err
		}
		if kind != websocket.MessageText {
			s.shut(reply.CloseProtocol, "binary frames are not taken: send JSON in text frames")
			return s.linger(r)
		}
		buf, whole, err := readAll((*room)[:0], r, s.m.cfg.MaxFrameBytes)
		*room = buf
		if err != nil {
			return err
		}
		if !whole {
			s.shut(reply.CloseTooBig, fmt.Sprintf("a frame is larger than max_frame_bytes (%d)", s.m.cfg.MaxFrameBytes))
			return s.linger(r)
		}
		if !s.text(buf) {
			return s.linger(r)
		}
	}
	return nil
}

// text takes in the text of a frame. It is false when the connection is to end.
func (s *session) text(frame []byte) bool {
	s.reading.Store(false) // from here on it is us who keep the client waiting
	if !utf8.Valid(frame) {
		s.shut(reply.CloseProtocol, "a text frame is not UTF-8")
		return false
	}
	return s.lines((*life)(s), frame)
}

// keepBytes is how much room is kept from frame to frame.
const keepBytes = 64 << 10

// frameRoom is room for frames, borrowed while there are any.
var frameRoom = sync.Pool{New: func() any { b := make([]byte, 0, 1024); return &b }}

// linger passes over what the client goes on sending until the connection is
// closed, so that its own close is heard.
func (s *session) linger(r io.Reader) error {
	for {
		if _, err := io.Copy(io.Discard, r); err != nil {
			return err
		}
		var err error
		if _, r, err = s.ws.Reader(context.Background()); err != nil {
			return err
		}
	}
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
	s.m.metrics.lines[f.Op].Inc()
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

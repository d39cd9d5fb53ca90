package stream

import (
	"errors"
	"net/http"
	"strconv"
	"time"
)

// writePiece is what one deadline covers: a client that takes as little as this
// in time is slow, but not stuck.
const writePiece = 16 << 10

// eventWriter writes server-sent events. Nothing leaves before flush.
type eventWriter struct {
	w    http.ResponseWriter
	rc   *http.ResponseController
	slow time.Duration
	cut  <-chan struct{} // closed: no time left

	buf     []byte
	tooSlow bool // a write found the client taking nothing
}

// event adds an event with one line of data; without an id the client keeps
// the one before.
func (e *eventWriter) event(name, id string, data []byte) {
	e.buf = append(e.buf, "event: "...)
	e.buf = append(e.buf, name...)
	if id != "" {
		e.buf = append(e.buf, "\nid: "...)
		e.buf = append(e.buf, id...)
	}
	e.buf = append(e.buf, "\ndata: "...)
	e.buf = append(e.buf, data...)
	e.buf = append(e.buf, "\n\n"...)
}

// position adds an id without an event: the client remembers it.
func (e *eventWriter) position(id string) {
	e.buf = append(e.buf, "id: "...)
	e.buf = append(e.buf, id...)
	e.buf = append(e.buf, "\n\n"...)
}

func (e *eventWriter) comment() { e.buf = append(e.buf, ":\n\n"...) }

func (e *eventWriter) retry(d time.Duration) {
	e.buf = append(e.buf, "retry: "...)
	e.buf = strconv.AppendInt(e.buf, max(1, d.Milliseconds()), 10)
	e.buf = append(e.buf, "\n\n"...)
}

// flush writes what was added.
func (e *eventWriter) flush() error {
	b := e.buf
	e.buf = e.buf[:0]
	for len(b) > 0 {
		n := min(len(b), writePiece)
		if err := e.write(b[:n], n == len(b)); err != nil {
			return err
		}
		b = b[n:]
	}
	if cap(e.buf) > 4*writeAhead { // one large message is no reason to keep the room
		e.buf = nil
	}
	return nil
}

func (e *eventWriter) write(b []byte, last bool) error {
	select {
	case <-e.cut:
		return http.ErrServerClosed
	default:
	}
	began := time.Now()
	err := e.rc.SetWriteDeadline(began.Add(e.slow))
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err = e.w.Write(b); err == nil && last {
		err = e.rc.Flush()
	}
	if err != nil {
		e.tooSlow = time.Since(began) >= e.slow
		return err
	}
	// Over HTTP/2 a deadline that passes ends the stream, idle or not.
	if err = e.rc.SetWriteDeadline(time.Time{}); errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

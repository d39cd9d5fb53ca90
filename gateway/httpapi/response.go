package httpapi

import (
	"bufio"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	// writeTimeout is how long one write may wait for a client that takes no
	// byte: as long as a slow consumer of a stream may.
	writeTimeout = 10 * time.Second
	// writePiece is what one deadline covers over HTTP/2: a client that takes as
	// little as this in time is slow, but not stuck.
	writePiece = 16 << 10
)

// response is a ResponseWriter that knows whether the answer has begun, and
// that over HTTP/2 gives each write its own deadline: an answer may last for
// hours, but a client that takes nothing holds a goroutine for ten seconds only.
// Over HTTP/1.1 the connection sees to that (see Patient).
type response struct {
	http.ResponseWriter
	control  *http.ResponseController // of the one above
	lasting  bool                     // HTTP/2: a deadline belongs to the stream, and goes off even between writes
	status   int                      // 0: the answer has not begun
	hijacked bool
	own      bool        // whoever writes sets deadlines of their own
	unread   atomic.Bool // the body was not read to its end
}

func newResponse(w http.ResponseWriter, r *http.Request) *response {
	res := &response{ResponseWriter: w, control: http.NewResponseController(w), lasting: r.ProtoMajor >= 2}
	// The request before on this connection may have left a deadline behind,
	// which would cut a "100 Continue" short.
	_ = res.control.SetWriteDeadline(time.Time{})
	return res
}

func (w *response) begin() func() {
	if w.own || !w.lasting {
		return func() {}
	}
	_ = w.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // a writer of a test has none
	return func() { _ = w.control.SetWriteDeadline(time.Time{}) }
}

// end gives what net/http still holds back its deadline.
func (w *response) end() {
	if w.lasting {
		_ = w.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	}
}

func (w *response) WriteHeader(status int) {
	if status >= 200 {
		w.status = status
		if w.unread.Load() && !w.lasting {
			// What is left of the body must not be taken for the next request.
			w.Header().Set("Connection", "close")
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	if !w.lasting || w.own {
		return w.ResponseWriter.Write(p)
	}
	for total := 0; ; {
		n, err := w.writeOne(p[total:min(len(p), total+writePiece)])
		if total += n; err != nil || total == len(p) {
			return total, err
		}
	}
}

func (w *response) writeOne(p []byte) (int, error) {
	defer w.begin()()
	return w.ResponseWriter.Write(p)
}

// SetWriteDeadline is what http.ResponseController looks for: streams know
// better how long a client may take nothing.
func (w *response) SetWriteDeadline(t time.Time) error {
	w.own = true
	return w.control.SetWriteDeadline(t)
}

// FlushError is what http.ResponseController looks for.
func (w *response) FlushError() error {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	defer w.begin()()
	return w.control.Flush()
}

// Flush is for those who ask for an http.Flusher.
func (w *response) Flush() { _ = w.FlushError() }

// Hijack hands the connection over; from then on its deadlines are the new
// owner's.
func (w *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.control.Hijack()
	if err == nil {
		w.hijacked = true
		if w.status == 0 { // else an answer has begun, which the new owner goes on with
			w.status = http.StatusSwitchingProtocols
		}
	}
	return conn, rw, err
}

// Unwrap lets http.ResponseController reach deadlines and full duplex.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

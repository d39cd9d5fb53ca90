package httpapi

import (
	"context"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"tidewire/gateway/budget"
	"tidewire/internal/fault"
)

const (
	// bodySilence is how long the sender of one body may send nothing.
	bodySilence = 30 * time.Second
	// lineSilence is that of a stream of lines, whose source may be quiet.
	lineSilence = 5 * time.Minute
	// bodyTime is how long a whole body may take that is not a stream of lines.
	bodyTime = 5 * time.Minute
	// controlBytes bounds the body of a call of control.
	controlBytes = 64 << 10
)

// sender reads a body and bounds how long its client may keep it waiting.
type sender struct {
	body    io.Reader
	control *http.ResponseController
	answer  *response // nil: a writer of a test
	silence time.Duration
	until   time.Time       // of the whole body; zero: no bound
	stopped context.Context // ends reading when done; nil: never
}

// newSender reads a body that may be silent for a while, and take most in all;
// 0: no bound.
func newSender(w http.ResponseWriter, r *http.Request, silence, most time.Duration) *sender {
	s := &sender{body: r.Body, silence: silence}
	if res, ok := w.(*response); ok {
		s.answer, s.control = res, res.control
	} else {
		s.control = http.NewResponseController(w)
	}
	if most > 0 {
		s.until = time.Now().Add(most)
	}
	return s
}

// broken notes that the body cannot be read to its end.
func (s *sender) broken() {
	if s.answer != nil {
		s.answer.unread.Store(true)
	}
}

// Read sets the deadline for one read and takes it away again: left behind, it
// would end the request while its records are being kept.
func (s *sender) Read(p []byte) (int, error) {
	at := time.Now().Add(s.silence)
	if !s.until.IsZero() && s.until.Before(at) {
		at = s.until
	}
	_ = s.control.SetReadDeadline(at) // a writer of a test has none
	if s.stopped != nil && s.stopped.Err() != nil {
		// Looked at after the deadline is set: what stopWith sets comes later.
		s.broken()
		return 0, context.Cause(s.stopped)
	}
	n, err := s.body.Read(p)
	if err == nil || err == io.EOF {
		_ = s.control.SetReadDeadline(time.Time{})
	} else {
		s.broken()
	}
	return n, err
}

// stopWith makes ctx end even a Read that waits for its client. The function
// it returns forgets ctx.
func (s *sender) stopWith(ctx context.Context) (forget func() bool) {
	s.stopped = ctx
	return context.AfterFunc(ctx, func() { _ = s.control.SetReadDeadline(time.Now()) })
}

// brokenBody is the error for a body that did not arrive whole.
func brokenBody(err error) error {
	var n net.Error
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.As(err, &n) && n.Timeout():
		return fault.New(fault.Invalid, "the body did not arrive in time: %s without a byte (%s between lines of ndjson), or %s in all, is too slow", bodySilence, lineSilence, bodyTime).With("field", "body")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fault.New(fault.Invalid, "the body ended before it was whole").With("field", "body")
	}
	return fault.New(fault.Invalid, "the body could not be read: %w", err).With("field", "body")
}

// errTooMuch says that a body has more bytes than were asked for.
var errTooMuch = errors.New("too much")

// readBounded reads a whole body of at most most bytes; errTooMuch: it has more.
// What it holds it takes from share, as the body grows; it does not read on
// while the node holds all it may. Where room is enough to begin with, the body
// is read into it.
func readBounded(w http.ResponseWriter, r *http.Request, room []byte, most int, share *budget.Share) ([]byte, error) {
	if r.ContentLength > int64(most) {
		return nil, errTooMuch
	}
	// One byte more than announced, so that the end is met without growing; not
	// all at once, for announcing costs the client nothing.
	whole, first := most+1, 512
	if r.ContentLength >= 0 {
		whole, first = int(r.ContentLength)+1, 64<<10
	}
	first = min(first, whole)
	if first < cap(room) {
		first = cap(room) // it is there in any case
	}
	body := newSender(w, r, bodySilence, bodyTime)
	var b []byte
	for {
		if len(b) == cap(b) {
			grown := max(first, min(2*cap(b), whole))
			if err := share.Need(r.Context(), int64(grown), heldPatience); err != nil {
				body.broken()
				return nil, err
			}
			share.Give(int64(cap(b)))
			if grown == cap(room) {
				b = room[:0]
			} else {
				b = append(make([]byte, 0, grown), b...)
			}
		}
		n, err := body.Read(b[len(b):min(cap(b), most+1)])
		b = b[:len(b)+n]
		switch {
		case len(b) > most:
			return nil, errTooMuch
		case err == io.EOF:
			return b, nil
		case err != nil:
			return nil, brokenBody(err)
		}
	}
}

// controlBody reads the JSON body of a call of control. It counts against what
// the node holds only while it arrives: there is little of it.
func (a *API) controlBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	t, err := mediaType(r)
	if err != nil {
		return nil, err
	}
	// curl names a form when nobody names a type; what it sends here is JSON.
	if t != "" && t != formType && t != "application/json" && !strings.HasSuffix(t, "+json") {
		return nil, fault.New(fault.UnsupportedMediaType, "this call takes application/json, not %q", clip(t)).With("field", "Content-Type")
	}
	share := a.cfg.Held.Share()
	defer share.Close()
	b, err := readBounded(w, r, nil, controlBytes, share)
	if errors.Is(err, errTooMuch) {
		return nil, fault.New(fault.MessageTooLarge, "the body of this call takes at most %d bytes", controlBytes).With("field", "body")
	}
	return b, err
}

const (
	formType   = "application/x-www-form-urlencoded"
	ndjsonType = "application/x-ndjson"
)

// mediaType is the content type of a body in lower case and without its
// parameters, "" where none is given. Bodies come as they are, in UTF-8.
func mediaType(r *http.Request) (string, error) {
	if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return "", fault.New(fault.UnsupportedMediaType, "bodies are taken as they are, not with Content-Encoding %q", clip(e)).With("field", "Content-Encoding")
	}
	given := r.Header.Values("Content-Type")
	if len(given) > 1 {
		return "", invalid("Content-Type", "comes %d times; give it once", len(given))
	}
	if len(given) == 0 || given[0] == "" {
		return "", nil
	}
	switch given[0] {
	case "application/json", "text/plain", "application/octet-stream", ndjsonType: // as nearly all do
		return given[0], nil
	}
	t, extra, err := mime.ParseMediaType(given[0])
	if err != nil || !strings.Contains(t, "/") {
		return "", invalid("Content-Type", "takes a media type such as application/json, not %q", clip(given[0]))
	}
	charset := extra["charset"]
	if charset != "" && !strings.EqualFold(charset, "utf-8") && (t == ndjsonType || t == "application/json" || strings.HasSuffix(t, "+json")) {
		return "", fault.New(fault.UnsupportedMediaType, "JSON is taken in UTF-8, not in %q", clip(charset)).With("field", "Content-Type")
	}
	return t, nil
}

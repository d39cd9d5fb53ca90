package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"tidewire/internal/cluster"
)

// Event is one event of a stream (Server-Sent Events).
type Event struct {
	Name string // message where the server named none
	Data []byte
	ID   string // the last id seen, this event's included
	// Named: the id is this event's own, and what it tells lies before the place that
	// it names.
	Named bool
}

// Stream is an open stream of events. One goroutine reads it.
type Stream struct {
	body  io.ReadCloser
	parse parser
}

// maxSilence ends a stream that says nothing: the server comments every 15 s,
// so the connection is dead although nobody closed it.
const maxSilence = 45 * time.Second

// Events opens a topic's stream. With lastID it goes on after that event.
func (c *Client) Events(ctx context.Context, topic string, query url.Values, lastID string) (*Stream, error) {
	h := http.Header{"Accept": {"text/event-stream"}, "Cache-Control": {"no-cache"}}
	if lastID != "" {
		h.Set("Last-Event-ID", lastID)
	}
	resp, err := c.do(ctx, request{method: http.MethodGet, path: topicPath(topic, "/events"), query: query, header: h, silence: maxSilence})
	if err != nil {
		return nil, err
	}
	return &Stream{body: resp.Body, parse: parser{r: bufio.NewReaderSize(resp.Body, 64<<10), lastID: lastID}}, nil
}

// Next returns the next event. Its error means that the stream has ended.
func (s *Stream) Next() (Event, error) { return s.parse.next() }

// LastID is the last id that came whole, with an event or without.
func (s *Stream) LastID() string { return s.parse.lastID }

// Retry is the pause the server asked for before a new try; 0: it did not.
func (s *Stream) Retry() time.Duration { return s.parse.retry }

// Close ends the stream; it may be called while Next waits.
func (s *Stream) Close() {
	s.body.Close()
}

// maxEventBytes bounds one event: the largest message, each byte of which JSON
// may write as \u00xx, and what stands around it.
const maxEventBytes = 6*cluster.MaxMessageBytes + 1<<20

var errEventTooLong = fmt.Errorf("an event is longer than %d bytes", maxEventBytes)

// parser reads the event stream format: lines end in LF, CR LF or CR, an empty
// line ends an event, and an id stays until another comes.
type parser struct {
	r      *bufio.Reader
	lastID string // of the last event that came whole
	id     string // of the event that is being read
	retry  time.Duration
	begun  bool // the byte order mark is dealt with
	sawCR  bool // the last line ended in CR: an LF right after belongs to it
}

func (p *parser) next() (Event, error) {
	var e Event
	hasData := false
	p.id = p.lastID
	for {
		line, err := p.line()
		if err != nil {
			return Event{}, err // an event without its empty line is dropped
		}
		if len(line) == 0 {
			// Only now: whoever goes on from the id of an event that was cut
			// short would never see it.
			p.lastID = p.id
			if !hasData {
				e.Name, e.Named = "", false
				continue
			}
			if e.Name == "" {
				e.Name = "message"
			}
			e.ID = p.lastID
			return e, nil
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "data":
			if hasData {
				e.Data = append(e.Data, '\n')
			}
			if len(e.Data)+len(value) > maxEventBytes {
				return Event{}, errEventTooLong
			}
			e.Data, hasData = append(e.Data, value...), true
		case "event":
			e.Name = string(value)
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				p.id, e.Named = string(value), true
			}
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
				p.retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
}

// line reads one line without its end.
func (p *parser) line() ([]byte, error) {
	if !p.begun {
		p.begun = true
		if mark, err := p.r.Peek(3); err == nil && string(mark) == "\xef\xbb\xbf" {
			_, _ = p.r.Discard(3)
		}
	}
	var line []byte
	for {
		c, err := p.r.ReadByte()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		sawCR := p.sawCR
		p.sawCR = c == '\r'
		switch {
		case c == '\n' && sawCR:
			continue
		case c == '\n' || c == '\r':
			return line, nil
		case len(line) >= maxEventBytes:
			return nil, errEventTooLong
		}
		line = append(line, c)
	}
}

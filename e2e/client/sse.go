package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Event is one server-sent event.
type Event struct {
	Name string
	ID   string // as it came with this event; "" for none (a stream never sends an empty one)
	Data []byte
}

// SSE is an open stream of events. One goroutine reads it.
type SSE struct {
	LastID   string // the last id seen, with an event or alone
	Retry    time.Duration
	Comments int
	Header   http.Header

	body   io.ReadCloser
	r      *bufio.Reader
	cancel context.CancelFunc
}

// Refusal is an answer that is no stream.
type Refusal struct {
	Status int
	Header http.Header
	Body   string
	Problem
}

func (r *Refusal) Error() string { return fmt.Sprintf("stream refused: %d %s", r.Status, r.Body) }

// OpenSSE opens a stream at a URL. lastID may be "".
func OpenSSE(ctx context.Context, url, lastID string) (*SSE, error) {
	ctx, cancel := context.WithCancel(ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		cancel()
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	return openSSE(req, lastID, cancel)
}

// Stream opens a stream by any request, such as POST /topics/subscribe.
func Stream(req *http.Request) (*SSE, error) {
	ctx, cancel := context.WithCancel(req.Context())
	return openSSE(req.WithContext(ctx), "", cancel)
}

func openSSE(req *http.Request, lastID string, cancel context.CancelFunc) (*SSE, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}
	res, err := client.Do(req)
	if err != nil {
		cancel()
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		defer cancel()
		defer res.Body.Close()
		b, _ := io.ReadAll(res.Body) // what there is of it
		r := &Refusal{Status: res.StatusCode, Header: res.Header, Body: string(b)}
		_ = json.Unmarshal(b, &r.Problem) // an answer that is no problem is shown by its body
		return nil, r
	}
	return &SSE{LastID: lastID, Header: res.Header, body: res.Body, r: bufio.NewReader(res.Body), cancel: cancel}, nil
}

// Next is the next event; an error means that the stream has ended.
func (s *SSE) Next() (Event, error) {
	for {
		if e, whole, err := s.dispatch(); err != nil || whole {
			return e, err
		}
	}
}

// NextID reads until the stream has named its place, with an event or alone, and gives it.
func (s *SSE) NextID() (string, error) {
	for {
		if e, _, err := s.dispatch(); err != nil || e.ID != "" {
			return e.ID, err
		}
	}
}

// dispatch reads up to the empty line behind an event, or behind an id that came alone:
// that is no whole event.
func (s *SSE) dispatch() (e Event, whole bool, err error) {
	e = Event{Name: "message"}
	dirty, named := false, false
	for {
		line, err := s.r.ReadBytes('\n')
		if err != nil {
			return Event{}, false, err // an event that is not whole is none
		}
		line = line[:len(line)-1]
		if len(line) == 0 {
			// As a browser does: an id counts from the empty line that ends its event.
			if named {
				s.LastID = e.ID
			}
			if dirty || named {
				return e, dirty, nil
			}
			e = Event{Name: "message"}
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "":
			s.Comments++
		case "data":
			if dirty {
				e.Data = append(e.Data, '\n')
			}
			e.Data, dirty = append(e.Data, value...), true
		case "event":
			e.Name = string(value)
		case "id":
			e.ID, named = string(value), true
		case "retry":
			ms, err := strconv.Atoi(string(value))
			if err != nil {
				return Event{}, false, fmt.Errorf("retry is no number: %q", value)
			}
			s.Retry = time.Duration(ms) * time.Millisecond
		default:
			return Event{}, false, fmt.Errorf("a line of the stream is of no known kind: %q", line)
		}
	}
}

// NextMessage is Next for a stream of messages; events of another name come
// with an empty message.
func (s *SSE) NextMessage() (Event, Message, error) {
	e, err := s.Next()
	if err != nil || e.Name != "message" {
		return e, Message{}, err
	}
	m, err := ParseMessage(e.Data)
	return e, m, err
}

// Close ends the stream; it may be called while Next waits.
func (s *SSE) Close() {
	s.cancel()
	_ = s.body.Close() // it may be gone already
}

// Events reads the stream that is the body of an answer.
func Events(res *http.Response) *SSE {
	return &SSE{Header: res.Header, body: res.Body, r: bufio.NewReader(res.Body), cancel: func() {}}
}

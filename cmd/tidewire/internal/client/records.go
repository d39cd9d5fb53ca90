package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Batch is a run of records for one partition, one line of ndjson each.
type Batch struct {
	Topic     string
	Partition uint32
	Lines     []byte // whole lines
	Count     int
	Acks      string
	Timeout   time.Duration // how long the server may take
	Producer  string        // empty: unsequenced
	Sequence  int64         // of the first line
}

// Result is the fate of one line: kept, or a problem.
type Result struct {
	Partition uint32
	Offset    int64 // -1: not said
	Duplicate bool
	Problem   *Problem // nil: kept
}

// Publish sends a batch and returns a result a line. After an error in the
// middle of the answer, the results that came stand and the rest is missing.
func (c *Client) Publish(ctx context.Context, b Batch) ([]Result, error) {
	h := http.Header{"Content-Type": {"application/x-ndjson"}, "Accept": {"application/x-ndjson"}}
	if b.Producer != "" {
		h.Set("Tidewire-Producer", b.Producer)
		h.Set("Tidewire-Sequence", strconv.FormatInt(b.Sequence, 10))
	}
	resp, err := c.do(ctx, request{
		method: http.MethodPost, path: topicPath(b.Topic, ""), header: h, body: b.Lines,
		query: url.Values{
			"partition": {strconv.FormatUint(uint64(b.Partition), 10)},
			"acks":      {b.Acks},
			"timeout":   {b.Timeout.String()},
		},
	})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	results := make([]Result, 0, b.Count)
	d := json.NewDecoder(bufio.NewReader(resp.Body))
	for len(results) < b.Count {
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return results, c.broken(fmt.Errorf("after %d of %d results: %w", len(results), b.Count, err))
		}
		r, err := parseResult(raw)
		if err != nil {
			return results, err
		}
		results = append(results, r)
	}
	return results, nil
}

func parseResult(raw json.RawMessage) (Result, error) {
	var r struct {
		Partition *uint32 `json:"partition"`
		Offset    *int64  `json:"offset"`
		Duplicate bool    `json:"duplicate"`
		Code      string  `json:"code"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return Result{}, fmt.Errorf("a result of the publish is not as expected: %w", err)
	}
	if r.Code != "" {
		p := &Problem{}
		if err := json.Unmarshal(raw, p); err != nil {
			return Result{}, fmt.Errorf("a problem of the publish is not as expected: %w", err)
		}
		p.Raw = raw
		return Result{Offset: -1, Problem: p}, nil
	}
	res := Result{Offset: -1, Duplicate: r.Duplicate}
	if r.Partition != nil {
		res.Partition = *r.Partition
	}
	if r.Offset != nil {
		res.Offset = *r.Offset
	}
	return res, nil
}

// Message is what the command line needs of a message; Raw is the whole of it.
type Message struct {
	Partition   uint32            `json:"partition"`
	Offset      int64             `json:"offset"`
	ContentType string            `json:"content_type"`
	Headers     map[string]string `json:"headers"`
	Value       json.RawMessage   `json:"value"`
	Base64      *[]byte           `json:"value_base64"`
	Tombstone   bool              `json:"tombstone"`

	Raw json.RawMessage `json:"-"` // on one line
}

// ParseMessage reads one message.
func ParseMessage(raw []byte) (Message, error) {
	var m Message
	if err := json.Unmarshal(raw, &m); err != nil {
		return Message{}, fmt.Errorf("a message is not as expected: %w", err)
	}
	m.Raw = oneLine(raw)
	return m, nil
}

// Page is one answer of a poll.
type Page struct {
	Messages []Message
	Cursor   string
	End      bool // nothing more was committed when it was read
}

// Poll reads a page of a topic.
func (c *Client) Poll(ctx context.Context, topic string, query url.Values) (Page, error) {
	var answer struct {
		Messages []json.RawMessage `json:"messages"`
		Cursor   string            `json:"cursor"`
		End      bool              `json:"end"`
	}
	if _, err := c.call(ctx, http.MethodGet, topicPath(topic, ""), query, nil, &answer); err != nil {
		return Page{}, err
	}
	p := Page{Cursor: answer.Cursor, End: answer.End, Messages: make([]Message, 0, len(answer.Messages))}
	for _, raw := range answer.Messages {
		m, err := ParseMessage(raw)
		if err != nil {
			return Page{}, err
		}
		p.Messages = append(p.Messages, m)
	}
	return p, nil
}

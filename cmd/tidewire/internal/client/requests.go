package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"tidewire/internal/record"
)

// The headers of request-reply.
const (
	replyToHeader     = "Tidewire-Reply-To"
	correlationHeader = "Tidewire-Correlation-Id"
	deadlineHeader    = "Tidewire-Deadline"
	statusHeader      = "Tidewire-Status"
	recordHeader      = "Tidewire-H-"
)

// Request is what is asked of the members of a topic's groups.
type Request struct {
	Topic       string
	Key         string // "": none
	Headers     []record.HeaderField
	ContentType string
	Value       []byte
	Correlation string        // a repeat with the same one is the same request; "": none
	Timeout     time.Duration // how long the reply may take
}

// Reply is what a responder says.
type Reply struct {
	Status      int // 200; 400 or more: the responder failed
	ContentType string
	Headers     []record.HeaderField
	Value       []byte
}

// Failed says that the responder could not do what it was asked for.
func (r Reply) Failed() bool { return r.Status >= http.StatusBadRequest }

// answerGrace is how much later than a reply's deadline the server may say that there is
// none.
const answerGrace = 2 * time.Second

// Ask sends a request and waits for its reply, a responder's failure included. Its errors
// are the server's own.
func (c *Client) Ask(ctx context.Context, q Request) (Reply, error) {
	h := http.Header{"Content-Type": {q.ContentType}}
	if q.Correlation != "" {
		h.Set(correlationHeader, q.Correlation)
	}
	for _, f := range q.Headers {
		h.Set(recordHeader+f.Name, f.Value)
	}
	query := url.Values{"timeout": {q.Timeout.String()}}
	if q.Key != "" {
		query.Set("key", q.Key)
	}
	resp, err := c.send(ctx, request{
		method: http.MethodPost, path: under("/requests", q.Topic, ""), query: query, header: h, body: nonNil(q.Value), silence: q.Timeout + answerGrace,
	})
	if err != nil {
		return Reply{}, err
	}
	defer resp.Body.Close()
	r := Reply{Status: http.StatusOK, ContentType: resp.Header.Get("Content-Type")}
	if text := resp.Header.Get(statusHeader); text != "" {
		if r.Status, err = strconv.Atoi(text); err != nil {
			return Reply{}, fmt.Errorf("the reply's status %q is no number", text)
		}
	} else if resp.StatusCode >= http.StatusMultipleChoices {
		return Reply{}, readProblem(resp)
	}
	for name, values := range resp.Header {
		if short, ok := strings.CutPrefix(name, recordHeader); ok {
			r.Headers = append(r.Headers, record.HeaderField{Name: strings.ToLower(short), Value: values[0]})
		}
	}
	if r.Value, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1)); err != nil {
		return Reply{}, c.broken(err)
	}
	if len(r.Value) > maxAnswerBytes {
		return Reply{}, fmt.Errorf("the reply is longer than %d bytes", maxAnswerBytes)
	}
	return r, nil
}

// Reply answers a request. The error of one whose requester has its reply already, or is
// gone, is a Problem with the code requester-gone.
func (c *Client) Reply(ctx context.Context, inbox string, r Reply) error {
	h := http.Header{"Content-Type": {r.ContentType}}
	if r.Failed() {
		h.Set(statusHeader, strconv.Itoa(r.Status))
	}
	for _, f := range r.Headers {
		h.Set(recordHeader+f.Name, f.Value)
	}
	resp, err := c.do(ctx, request{method: http.MethodPost, path: "/replies/" + url.PathEscape(inbox), header: h, body: nonNil(r.Value)})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, maxProblem))
	return err
}

// nonNil makes an empty body one that is sent as such.
func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// Asked is what a message of a group says of the request that it is.
type Asked struct {
	Inbox       string
	Correlation string
	Deadline    time.Time // by the node's clock; zero: none is given
	Until       time.Time // the same by this machine's clock
}

// Asked reads the headers of a request; ok is false where the message is none.
func (m Leased) Asked() (a Asked, ok bool) {
	a.Inbox, a.Correlation = m.Headers[replyToHeader], m.Headers[correlationHeader]
	// A deadline that cannot be read is none: the requester's node has its own.
	a.Deadline, _ = time.Parse(time.RFC3339, m.Headers[deadlineHeader])
	if a.Until = a.Deadline; !a.Deadline.IsZero() && !m.LeaseUntil.IsZero() {
		// What is left by the node's clock: this machine's may be wrong, or be set.
		sent := m.LeaseUntil.Add(-time.Duration(m.LeaseMS) * time.Millisecond)
		a.Until = m.Came.Add(a.Deadline.Sub(sent))
	}
	return a, a.Inbox != ""
}

package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Client calls one server. It may be used concurrently.
type Client struct {
	base  *url.URL
	http  *http.Client
	token string // "": none
}

const (
	dialTimeout = 5 * time.Second
	// maxAnswerBytes bounds an answer that is read whole: a poll has 16 MiB of
	// messages, or a single one of any size.
	maxAnswerBytes = maxEventBytes + 32<<20
	maxProblem     = 1 << 20
)

// New makes a client of a server such as http://127.0.0.1:8080. It calls nobody.
func New(server string) (*Client, error) {
	u, err := url.Parse(server)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%q is no address of a server such as http://127.0.0.1:8080", server)
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}
	return &Client{base: u, http: &http.Client{Transport: &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: dialTimeout,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     time.Minute,
	}}}, nil
}

// Server is the address the client was made with.
func (c *Client) Server() string { return c.base.String() }

// Bear shows a token with every call from now on. "" shows none. Its error says
// nothing of the token.
func (c *Client) Bear(token string) error {
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("a token has letters, digits, dots, - and _ alone")
	}
	c.token = token
	return nil
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Unreachable says that no answer came: nobody listens, or the connection broke.
type Unreachable struct {
	Server string
	Err    error
}

func (e *Unreachable) Error() string {
	return fmt.Sprintf("%s cannot be reached: %v", e.Server, e.Err)
}
func (e *Unreachable) Unwrap() error { return e.Err }

// Problem is the server's answer to a call it did not do (RFC 9457).
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Code   string `json:"code"`
	// Expected comes with out-of-order-sequence: the number to go on with.
	Expected *int64 `json:"expected,omitempty"`
	// Reason comes with unauthorized: what is wrong with the token.
	Reason string `json:"reason,omitempty"`
	// Retry is false where waiting does not help, whatever is usual for the code.
	Retry *bool `json:"retryable,omitempty"`
	// Cursor comes with cursor-expired: where to go on.
	Cursor string `json:"cursor,omitempty"`

	RetryAfter time.Duration   `json:"-"`
	Raw        json.RawMessage `json:"-"` // as the server wrote it; nil if that was no problem
}

func (p *Problem) Error() string {
	text := p.Detail
	if text == "" {
		text = p.Title
	}
	return fmt.Sprintf("%s (%s)", text, p.Code)
}

// Retryable reports whether the same call may succeed later without a change.
func (p *Problem) Retryable() bool {
	if p.Retry != nil && !*p.Retry {
		return false
	}
	return p.Status >= 500 || p.Status == http.StatusTooManyRequests
}

// request describes one call.
type request struct {
	method string
	path   string // escaped
	query  url.Values
	header http.Header
	body   []byte
	// silence is how long nothing of the answer may come before it is given up;
	// answerSilence if not given.
	silence time.Duration
}

// do sends a request and returns the answer if its status is below 300; the
// caller closes its body. Everything else is an *Unreachable or a *Problem.
func (c *Client) do(ctx context.Context, r request) (*http.Response, error) {
	resp, err := c.send(ctx, r)
	if err != nil || resp.StatusCode < 300 {
		return resp, err
	}
	defer resp.Body.Close()
	return nil, readProblem(resp)
}

// send sends a request and returns the answer, whatever its status. Its errors are
// *Unreachable.
func (c *Client) send(ctx context.Context, r request) (*http.Response, error) {
	ctx, quiet := listen(ctx, cmp.Or(r.silence, answerSilence))
	req, err := c.request(ctx, r)
	if err != nil {
		quiet.stop()
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		quiet.stop()
		return nil, c.broken(quiet.cause(err))
	}
	resp.Body = body{resp.Body, quiet}
	return resp, nil
}

func (c *Client) request(ctx context.Context, r request) (*http.Request, error) {
	u := c.base.String() + r.path
	if len(r.query) > 0 {
		u += "?" + r.query.Encode()
	}
	var body io.Reader
	if r.body != nil {
		body = bytes.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, u, body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", r.method, u, err)
	}
	for name, values := range r.header {
		req.Header[name] = values
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	return req, nil
}

func (c *Client) broken(err error) error {
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err // the URL is said already
	}
	return &Unreachable{Server: c.Server(), Err: err}
}

// readProblem decodes a problem; an answer that is none (of a proxy between,
// or not of this system at all) becomes one by its status.
func readProblem(resp *http.Response) *Problem {
	p := &Problem{}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err == nil && media == "application/problem+json" && json.Unmarshal(data, p) == nil {
		p.Raw = data
	}
	p.Status = resp.StatusCode
	if p.Title == "" {
		p.Title = http.StatusText(p.Status)
	}
	if p.Code == "" {
		p.Code = "http-" + strconv.Itoa(p.Status)
		p.Detail = fmt.Sprintf("the server answered %s, not as Tidewire does: is %s the right address?", resp.Status, resp.Request.URL.Host)
	}
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s >= 0 {
		p.RetryAfter = time.Duration(min(s, 3600)) * time.Second
	}
	return p
}

// call sends a request with an optional JSON body and decodes the JSON answer
// into out, unless that is nil. It returns the status.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, in, out any) (int, error) {
	r := request{method: method, path: path, query: query, header: http.Header{"Accept": {"application/json"}}}
	if in != nil {
		body, err := json.Marshal(in)
		if err != nil {
			return 0, fmt.Errorf("encode the request: %w", err)
		}
		r.body = body
		r.header.Set("Content-Type", "application/json")
	}
	resp, err := c.do(ctx, r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	switch {
	case err != nil:
		return 0, c.broken(err)
	case len(data) > maxAnswerBytes:
		return 0, fmt.Errorf("%s %s: the answer is longer than %d bytes", method, path, maxAnswerBytes)
	case out == nil:
		return resp.StatusCode, nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return 0, unexpected(method, path, err)
	}
	return resp.StatusCode, nil
}

func unexpected(method, path string, err error) error {
	return fmt.Errorf("%s %s: the answer is not as expected: %w", method, path, err)
}

// listed fetches what an answer has under a name.
func listed[T any](ctx context.Context, c *Client, path, name string) ([]T, error) {
	var answer map[string]json.RawMessage
	if _, err := c.call(ctx, http.MethodGet, path, nil, nil, &answer); err != nil {
		return nil, err
	}
	var all []T
	if list, ok := answer[name]; ok {
		if err := json.Unmarshal(list, &all); err != nil {
			return nil, unexpected(http.MethodGet, path, err)
		}
	}
	return all, nil
}

// topicPath is the path of a topic.
func topicPath(name string, more string) string { return under("/topics", name, more) }

// under is the path of a name. One of only dots would be eaten as a step up; no topic
// has one, but a mistyped command may.
func under(root, name, more string) string {
	return root + "/" + strings.ReplaceAll(url.PathEscape(name), ".", "%2E") + more
}

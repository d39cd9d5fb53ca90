package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
)

// API calls one node over HTTP.
type API struct {
	URL  string // http://host:port
	HTTP *http.Client
}

// New makes one with connections of its own.
func New(url string) *API {
	return &API{URL: url, HTTP: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}}}
}

// Answer is what came back.
type Answer struct {
	Status int
	Header http.Header
	Body   string
}

// Do sends one request; headers are name, value, name, value. An error leaves
// open what became of it; the part of an answer that came is in the Answer.
func (a *API) Do(ctx context.Context, method, path, contentType, body string, headers ...string) (Answer, error) {
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, a.URL+path, r)
	if err != nil {
		return Answer{}, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header[headers[i]] = append(req.Header[headers[i]], headers[i+1])
	}
	res, err := a.HTTP.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return Answer{Status: res.StatusCode, Header: res.Header, Body: string(b)}, err
}

// Must is Do for a node that is up and a call that is right: any other status
// than want ends the test.
func (a *API) Must(t testing.TB, want int, method, path, contentType, body string, headers ...string) Answer {
	t.Helper()
	ans, err := a.Do(t.Context(), method, path, contentType, body, headers...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	if ans.Status != want {
		t.Fatalf("%s %s: %d, want %d: %.500s", method, path, ans.Status, want, ans.Body)
	}
	return ans
}

// Problem is an error as HTTP and WebSocket carry it, with every field that
// some code adds.
type Problem struct {
	Type      string          `json:"type"`
	Title     string          `json:"title"`
	Status    int             `json:"status"`
	Detail    string          `json:"detail"`
	Code      string          `json:"code"`
	Field     string          `json:"field"`
	Reason    string          `json:"reason"`
	Right     string          `json:"right"`
	Expected  *int64          `json:"expected"`
	Requested json.RawMessage `json:"requested"`
	Earliest  json.RawMessage `json:"earliest"`
	End       json.RawMessage `json:"end"`
	Cursor    string          `json:"cursor"`
}

// Problem reads a refusal and says what of it is not as the contract has it.
func (a *Answer) Problem() (Problem, error) {
	var p Problem
	if ct := a.Header.Get("Content-Type"); ct != "application/problem+json" {
		return p, fmt.Errorf("status %d with Content-Type %q is no problem: %.300s", a.Status, ct, a.Body)
	}
	if err := json.Unmarshal([]byte(a.Body), &p); err != nil {
		return p, fmt.Errorf("status %d: %w: %.300s", a.Status, err, a.Body)
	}
	switch {
	case p.Status != a.Status, p.Type != "/problems/"+p.Code, p.Title == "", p.Detail == "":
		return p, fmt.Errorf("status %d carries an unfinished problem: %s", a.Status, a.Body)
	case (a.Status == 429 || a.Status == 503) && a.Header.Get("Retry-After") == "":
		return p, fmt.Errorf("status %d without Retry-After: %s", a.Status, a.Body)
	}
	return p, nil
}

// Page is an answer to a poll: messages, or a problem where Status is not 200.
type Page struct {
	Answer   `json:"-"`
	Messages []Message `json:"messages"`
	Cursor   string    `json:"cursor"`
	End      bool      `json:"end"`
	Problem  Problem   `json:"-"`
}

// Poll reads a page of a topic; query is name, value, name, value.
func (a *API) Poll(ctx context.Context, topic string, query ...string) (Page, error) {
	q := url.Values{}
	for i := 0; i+1 < len(query); i += 2 {
		q.Set(query[i], query[i+1])
	}
	path := "/topics/" + topic
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	ans, err := a.Do(ctx, http.MethodGet, path, "", "")
	p := Page{Answer: ans}
	if err != nil {
		return p, err
	}
	if ans.Status != http.StatusOK {
		p.Problem, err = ans.Problem()
		return p, err
	}
	if err := json.Unmarshal([]byte(ans.Body), &p); err != nil {
		return p, fmt.Errorf("poll %s: %w: %.300s", path, err, ans.Body)
	}
	if p.Cursor == "" || p.Messages == nil {
		return p, fmt.Errorf("poll %s: no cursor or no messages: %.300s", path, ans.Body)
	}
	for i := range p.Messages {
		if err := p.Messages[i].check(); err != nil {
			return p, fmt.Errorf("poll %s: %w", path, err)
		}
	}
	return p, nil
}

// MustPoll is Poll for a call that is right.
func (a *API) MustPoll(t testing.TB, topic string, query ...string) Page {
	t.Helper()
	p, err := a.Poll(t.Context(), topic, query...)
	if err != nil {
		t.Fatal(err)
	}
	if p.Status != http.StatusOK {
		t.Fatalf("poll %s %v: %d %s", topic, query, p.Status, p.Body)
	}
	return p
}

// ReadAll reads a partition from its log start to its end.
func (a *API) ReadAll(t testing.TB, topic string, partition int) []Message {
	t.Helper()
	var all []Message
	next := "earliest"
	for {
		p := a.MustPoll(t, topic, "partition", strconv.Itoa(partition), "offset", next, "limit", "5000", "max_bytes", strconv.Itoa(4<<20))
		all = append(all, p.Messages...)
		if p.End {
			return all
		}
		if len(p.Messages) == 0 {
			t.Fatalf("read %s/%d from %s: nothing, and it is not the end: %s", topic, partition, next, p.Body)
		}
		next = strconv.FormatInt(all[len(all)-1].Offset+1, 10)
	}
}

// Place is the answer to a publish.
type Place struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	Offset    *int64 `json:"offset"`
	Timestamp string `json:"timestamp"`
	Duplicate *bool  `json:"duplicate"`
}

// Place reads the answer to a publish.
func (a *Answer) Place() (Place, error) {
	var p Place
	if err := json.Unmarshal([]byte(a.Body), &p); err != nil {
		return p, fmt.Errorf("status %d: %w: %.300s", a.Status, err, a.Body)
	}
	if p.Topic == "" {
		return p, fmt.Errorf("status %d names no topic: %.300s", a.Status, a.Body)
	}
	return p, nil
}

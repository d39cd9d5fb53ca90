package harness

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Message is a record as readers see it.
type Message struct {
	Topic       string            `json:"topic"`
	Partition   int               `json:"partition"`
	Offset      int64             `json:"offset"`
	Timestamp   string            `json:"timestamp"`
	Key         string            `json:"key"`
	ContentType string            `json:"content_type"`
	Headers     map[string]string `json:"headers"`
	Value       json.RawMessage   `json:"value"`
}

// Text is a value that travelled as a JSON string.
func (m Message) Text() string {
	var s string
	if json.Unmarshal(m.Value, &s) != nil {
		return string(m.Value)
	}
	return s
}

// Page is the answer to a poll.
type Page struct {
	Messages []Message `json:"messages"`
	Cursor   string    `json:"cursor"`
	End      bool      `json:"end"`
}

// Problem is a refusal.
type Problem struct {
	Status int    `json:"status"`
	Code   string `json:"code"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
	Field  string `json:"field"`
}

func (p *Problem) Error() string { return fmt.Sprintf("%d %s: %s", p.Status, p.Code, p.Detail) }

// problem reads the body of a refusal. One that is no problem is an error of
// its own.
func problem(status int, header http.Header, body string) error {
	p := &Problem{}
	if ct := header.Get("Content-Type"); !strings.HasPrefix(ct, "application/problem+json") {
		return fmt.Errorf("status %d with Content-Type %q is no problem: %q", status, ct, body)
	}
	if err := json.Unmarshal([]byte(body), p); err != nil {
		return fmt.Errorf("status %d: %w in %q", status, err, body)
	}
	if p.Status != status || p.Code == "" {
		return fmt.Errorf("status %d carries the problem %q", status, body)
	}
	if (status == 429 || status == 503) && header.Get("Retry-After") == "" {
		return fmt.Errorf("status %d without Retry-After: %q", status, body)
	}
	return p
}

// CreateTopic makes a topic; settings are further members of its JSON.
func (n *Node) CreateTopic(name string, partitions int, settings ...string) {
	n.t.Helper()
	body := fmt.Sprintf(`{"name":%q,"partitions":%d`, name, partitions)
	for _, s := range settings {
		body += "," + s
	}
	if status, answer := n.Do("POST", "/topics/", "application/json", body+"}"); status != 201 && status != 200 {
		n.t.Fatalf("create topic %s: %d %s", name, status, answer)
	}
}

// Poll reads one page of one partition. A refusal is a *Problem.
func (n *Node) Poll(topic string, partition int, offset int64, query string) (Page, error) {
	path := fmt.Sprintf("/topics/%s?partition=%d&offset=%d%s", url.PathEscape(topic), partition, offset, query)
	status, header, body, err := n.Try("GET", path, "", "")
	if err != nil {
		return Page{}, err
	}
	if status != 200 {
		return Page{}, problem(status, header, body)
	}
	var page Page
	if err := json.Unmarshal([]byte(body), &page); err != nil {
		return Page{}, fmt.Errorf("poll %s: %w in %q", path, err, body)
	}
	return page, nil
}

// ReadPartition reads a partition from an offset to its end. It fails where
// offsets are not contiguous; a refusal on the way gives what was read and a *Problem.
func (n *Node) ReadPartition(topic string, partition int, from int64) ([]Message, error) {
	var all []Message
	for next := from; ; {
		page, err := n.Poll(topic, partition, next, "&limit=10000&max_bytes=16777216")
		if err != nil {
			return all, err
		}
		for _, m := range page.Messages {
			if m.Offset != next || m.Partition != partition {
				return all, fmt.Errorf("partition %d: offset %d of partition %d where %d is due", partition, m.Offset, m.Partition, next)
			}
			next++
		}
		all = append(all, page.Messages...)
		if page.End {
			return all, nil
		}
		if len(page.Messages) == 0 {
			return all, fmt.Errorf("partition %d: an empty page at offset %d that is not the end", partition, next)
		}
	}
}

// Place is where a record is kept.
type Place struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	Offset    int64  `json:"offset"`
	Timestamp string `json:"timestamp"`
	Duplicate bool   `json:"duplicate"`
}

// Publish keeps one text record. A refusal is a *Problem; any other error
// leaves open whether the record is kept.
func (n *Node) Publish(topic, query, value string, headers ...string) (Place, error) {
	path := "/topics/" + url.PathEscape(topic)
	if query != "" {
		path += "?" + query
	}
	status, header, body, err := n.Try("POST", path, "text/plain", value, headers...)
	if err != nil {
		return Place{}, err
	}
	if status != 200 && status != 201 {
		return Place{}, problem(status, header, body)
	}
	var place Place
	if err := json.Unmarshal([]byte(body), &place); err != nil {
		return Place{}, fmt.Errorf("publish to %s: %w in %q", path, err, body)
	}
	return place, nil
}

// Line is the answer to one line of ndjson: a place, or a problem where Code is set.
type Line struct {
	Place
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// PublishLines sends lines of ndjson and reads the answer to each.
func (n *Node) PublishLines(topic, query, lines string, headers ...string) ([]Line, error) {
	path := "/topics/" + url.PathEscape(topic)
	if query != "" {
		path += "?" + query
	}
	status, header, body, err := n.Try("POST", path, "application/x-ndjson", lines, headers...)
	if err != nil && body == "" {
		return nil, err
	}
	if err == nil && status != 201 && status != 207 && status != 200 {
		return nil, problem(status, header, body)
	}
	var all []Line
	for text := range strings.Lines(body) {
		if !strings.HasSuffix(text, "\n") {
			break // cut short: no answer
		}
		var l Line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			return all, fmt.Errorf("answer %s: %w in %q", strconv.Itoa(len(all)), err, text)
		}
		all = append(all, l)
	}
	return all, err
}

// EachPartition is the end of every partition of a topic as its description says.
func (n *Node) EachPartition(topic string) map[int]int64 {
	n.t.Helper()
	status, body := n.Do("GET", "/topics/"+url.PathEscape(topic)+"/metadata", "", "")
	if status != 200 {
		n.t.Fatalf("describe %s: %d %s", topic, status, body)
	}
	var d struct {
		Layout struct {
			Partitions []struct {
				ID int   `json:"id"`
				HW int64 `json:"hw"`
			} `json:"partitions"`
		} `json:"layout"`
	}
	if err := json.Unmarshal([]byte(body), &d); err != nil {
		n.t.Fatal(err)
	}
	ends := map[int]int64{}
	for _, p := range d.Layout.Partitions {
		ends[p.ID] = p.HW
	}
	return ends
}

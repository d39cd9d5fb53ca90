package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Retention is how long a topic keeps its records.
type Retention struct {
	Age   *string `json:"age,omitempty"`
	Bytes *int64  `json:"bytes,omitempty"`
}

// TopicSettings creates or changes a topic; what is nil was not given.
type TopicSettings struct {
	Name              string     `json:"name,omitempty"`
	Partitions        *int       `json:"partitions,omitempty"`
	Replicas          *int       `json:"replicas,omitempty"`
	MinInsync         *int       `json:"min_insync,omitempty"`
	Retention         *Retention `json:"retention,omitempty"`
	MaxMessageBytes   *int64     `json:"max_message_bytes,omitempty"`
	Durability        *string    `json:"durability,omitempty"`
	Unclean           *bool      `json:"unclean,omitempty"`
	IdempotencyWindow *string    `json:"idempotency_window,omitempty"`
}

// Partition is one partition of a layout.
type Partition struct {
	ID          uint32   `json:"id"`
	Lo          uint64   `json:"lo"`
	Hi          uint64   `json:"hi"`
	State       string   `json:"state"`
	Leader      string   `json:"leader"`
	LeaderEpoch uint32   `json:"leader_epoch"`
	Replicas    []string `json:"replicas"`
	ISR         []string `json:"isr"`
	Earliest    *int64   `json:"earliest"` // nil: nobody could say
	HW          *int64   `json:"hw"`       // likewise
}

// Topic is a topic's description.
type Topic struct {
	ID                string    `json:"id"`
	Name              string    `json:"name"`
	Replicas          int       `json:"replicas"`
	MinInsync         int       `json:"min_insync"`
	Retention         Retention `json:"retention"`
	MaxMessageBytes   int64     `json:"max_message_bytes"`
	Durability        string    `json:"durability"`
	Unclean           bool      `json:"unclean"`
	IdempotencyWindow string    `json:"idempotency_window"`
	Layout            struct {
		Generation uint32      `json:"generation"`
		Partitions []Partition `json:"partitions"`
	} `json:"layout"`

	Raw json.RawMessage `json:"-"` // as the server wrote it, on one line
}

// UnmarshalJSON keeps the server's own words beside the fields.
func (t *Topic) UnmarshalJSON(b []byte) error {
	type plain Topic
	if err := json.Unmarshal(b, (*plain)(t)); err != nil {
		return err
	}
	t.Raw = oneLine(b)
	return nil
}

// Node is a node's description.
type Node struct {
	ID        string   `json:"id"`
	Name      string   `json:"name"`
	Zone      string   `json:"zone"`
	Roles     []string `json:"roles"`
	State     string   `json:"state"`
	Version   string   `json:"version"`
	Addresses struct {
		HTTP string `json:"http"`
	} `json:"addresses"`
	Partitions struct {
		Led      int `json:"led"`
		Followed int `json:"followed"`
	} `json:"partitions"`
	CoordinatorLeader bool              `json:"coordinator_leader"`
	Moves             []json.RawMessage `json:"moves"`
	Connections       *int64            `json:"connections"` // nil: the node was not asked, or did not answer
	Disk              *Disk             `json:"disk"`

	Raw json.RawMessage `json:"-"`
}

// Disk is what a node's data folder takes, and has left.
type Disk struct {
	Used int64 `json:"used"`
	Free int64 `json:"free"`
}

// UnmarshalJSON keeps the server's own words beside the fields.
func (n *Node) UnmarshalJSON(b []byte) error {
	type plain Node
	if err := json.Unmarshal(b, (*plain)(n)); err != nil {
		return err
	}
	n.Raw = oneLine(b)
	return nil
}

func oneLine(b []byte) json.RawMessage {
	var out bytes.Buffer
	if json.Compact(&out, b) != nil {
		return bytes.Clone(b)
	}
	return out.Bytes()
}

// CreateTopic creates a topic; created is false if it was there just so.
func (c *Client) CreateTopic(ctx context.Context, s TopicSettings) (t Topic, created bool, err error) {
	status, err := c.call(ctx, http.MethodPost, "/topics/", nil, s, &t)
	return t, status == http.StatusCreated, err
}

// Topics lists the topics.
func (c *Client) Topics(ctx context.Context) ([]Topic, error) {
	var answer struct {
		Topics []Topic `json:"topics"`
	}
	_, err := c.call(ctx, http.MethodGet, "/topics/", nil, nil, &answer)
	return answer.Topics, err
}

// Topic describes one topic.
func (c *Client) Topic(ctx context.Context, name string) (t Topic, err error) {
	_, err = c.call(ctx, http.MethodGet, topicPath(name, "/metadata"), nil, nil, &t)
	return t, err
}

// AlterTopic changes settings and returns the new description.
func (c *Client) AlterTopic(ctx context.Context, name string, s TopicSettings) (t Topic, err error) {
	_, err = c.call(ctx, http.MethodPatch, topicPath(name, ""), nil, s, &t)
	return t, err
}

// DeleteTopic deletes a topic.
func (c *Client) DeleteTopic(ctx context.Context, name string) error {
	_, err := c.call(ctx, http.MethodDelete, topicPath(name, ""), nil, nil, nil)
	return err
}

// Nodes lists the nodes, and says how old the word of the coordinators is.
func (c *Client) Nodes(ctx context.Context) (nodes []Node, age time.Duration, err error) {
	var answer struct {
		Nodes   []Node `json:"nodes"`
		FeedAge string `json:"feed_age"`
	}
	if _, err = c.call(ctx, http.MethodGet, "/nodes/", nil, nil, &answer); err != nil {
		return nil, 0, err
	}
	age, _ = time.ParseDuration(answer.FeedAge) // an older node does not say
	return answer.Nodes, age, nil
}

// Node describes one node, by id or name.
func (c *Client) Node(ctx context.Context, id string) (n Node, err error) {
	_, err = c.call(ctx, http.MethodGet, "/nodes/"+url.PathEscape(id), nil, nil, &n)
	return n, err
}

// Drain takes leaders and clients off a node, or takes that back.
func (c *Client) Drain(ctx context.Context, node string, cancel bool) error {
	_, err := c.call(ctx, http.MethodPost, "/nodes/"+url.PathEscape(node)+"/drain", nil, map[string]bool{"cancel": cancel}, nil)
	return err
}

// Alert is something that needs somebody, or did.
type Alert struct {
	Alert  string `json:"alert"`
	State  string `json:"state"`
	Since  string `json:"since"`
	Until  string `json:"until"` // empty: it still does
	Detail string `json:"detail"`
	Advice string `json:"advice"`

	Raw json.RawMessage `json:"-"`
}

// UnmarshalJSON keeps the server's own words beside the fields.
func (a *Alert) UnmarshalJSON(b []byte) error {
	type plain Alert
	if err := json.Unmarshal(b, (*plain)(a)); err != nil {
		return err
	}
	a.Raw = oneLine(b)
	return nil
}

// Alerts lists those that fire, and those that resolved lately.
func (c *Client) Alerts(ctx context.Context) ([]Alert, error) {
	var answer struct {
		Alerts []Alert `json:"alerts"`
	}
	_, err := c.call(ctx, http.MethodGet, "/alerts", nil, nil, &answer)
	return answer.Alerts, err
}

// Ready asks whether the server can serve. A server that cannot answers with a
// problem or with its reasons; both come back as not ready and one line of why. One that
// can and has warnings gives those.
func (c *Client) Ready(ctx context.Context) (ready bool, why string, err error) {
	resp, err := c.do(ctx, request{method: http.MethodGet, path: "/readyz", header: http.Header{"Accept": {"application/json"}}})
	var p *Problem
	if errors.As(err, &p) {
		return false, p.Error(), nil
	} else if err != nil {
		return false, "", err
	}
	defer resp.Body.Close()
	var answer struct {
		Warnings []string `json:"warnings"`
	}
	_ = json.NewDecoder(io.LimitReader(resp.Body, maxProblem)).Decode(&answer) // its status says all that counts
	return true, strings.Join(answer.Warnings, "; "), nil
}

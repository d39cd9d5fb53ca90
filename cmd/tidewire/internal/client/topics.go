package client

import (
	"context"
	"encoding/json"
	"net/http"
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
	return withRaw(b, (*plain)(t), &t.Raw)
}

// CreateTopic creates a topic; created is false if it was there just so.
func (c *Client) CreateTopic(ctx context.Context, s TopicSettings) (t Topic, created bool, err error) {
	status, err := c.call(ctx, http.MethodPost, "/topics/", nil, s, &t)
	return t, status == http.StatusCreated, err
}

// Topics lists the topics.
func (c *Client) Topics(ctx context.Context) ([]Topic, error) {
	return listed[Topic](ctx, c, "/topics/", "topics")
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

// Purged is where a topic's partitions begin after a purge.
type Purged struct {
	Partitions []struct {
		Partition uint32 `json:"partition"`
		Earliest  int64  `json:"earliest"`
	} `json:"partitions"`

	Raw json.RawMessage `json:"-"` // as the server wrote it, on one line
}

// UnmarshalJSON keeps the server's own words beside the fields.
func (p *Purged) UnmarshalJSON(b []byte) error {
	type plain Purged
	return withRaw(b, (*plain)(p), &p.Raw)
}

// PurgeTopic takes everything below an offset out of the partitions that are named; nil:
// out of all of them, up to their high watermarks of now.
func (c *Client) PurgeTopic(ctx context.Context, name string, before map[uint32]int64) (p Purged, err error) {
	body := struct {
		Before map[uint32]int64 `json:"before,omitzero"` // one without a partition is refused, and is no purge of all
	}{before}
	_, err = c.call(ctx, http.MethodPost, topicPath(name, "/purge"), nil, body, &p)
	return p, err
}

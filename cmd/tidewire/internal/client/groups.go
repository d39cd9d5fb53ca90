package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// GroupSettings registers a group; what is nil was not given.
type GroupSettings struct {
	Group         string  `json:"group,omitempty"`
	Mode          *string `json:"mode,omitempty"`
	From          *string `json:"from,omitempty"`
	Lease         *string `json:"lease,omitempty"`
	Session       *string `json:"session,omitempty"`
	MaxDeliveries *int    `json:"max_deliveries,omitempty"`
	Backoff       *string `json:"backoff,omitempty"`
	DeadLetter    *string `json:"dead_letter,omitempty"`
	MaxInFlight   *int    `json:"max_in_flight,omitempty"`
}

// GroupMember is a member as a description tells it.
type GroupMember struct {
	Member     string   `json:"member"`
	Node       string   `json:"node"`
	Since      string   `json:"since"`
	Partitions []uint32 `json:"partitions"`
}

// GroupPartition is how far a group has come on a partition. What is nil nobody could say.
type GroupPartition struct {
	Partition     uint32  `json:"partition"`
	Member        string  `json:"member"`
	Committed     *int64  `json:"committed"`
	InFlight      *int64  `json:"in_flight"`
	End           *int64  `json:"end"`
	Lag           *int64  `json:"lag"`
	OldestUnacked *string `json:"oldest_unacked"`
	Redelivered   *int64  `json:"redelivered"`
	Dead          *int64  `json:"dead"`
	Expired       *int64  `json:"expired"`
}

// Group is a group's description.
type Group struct {
	Group         string           `json:"group"`
	Mode          string           `json:"mode"`
	Lease         string           `json:"lease"`
	Session       string           `json:"session"`
	MaxDeliveries int              `json:"max_deliveries"`
	Backoff       string           `json:"backoff"`
	DeadLetter    string           `json:"dead_letter"`
	MaxInFlight   int              `json:"max_in_flight"`
	Members       []GroupMember    `json:"members"`
	Partitions    []GroupPartition `json:"partitions"`

	Raw json.RawMessage `json:"-"`
}

// UnmarshalJSON keeps the server's own words beside the fields.
func (g *Group) UnmarshalJSON(b []byte) error {
	type plain Group
	return withRaw(b, (*plain)(g), &g.Raw)
}

// Joined is a life of a member.
type Joined struct {
	Member     string   `json:"member"`
	Epoch      uint64   `json:"epoch"`
	Heartbeat  string   `json:"heartbeat"`
	Session    string   `json:"session"`
	Partitions []uint32 `json:"partitions"`
}

// Held answers a heartbeat: what the member has, and what it is to let go of.
type Held struct {
	Epoch      uint64   `json:"epoch"`
	Partitions []uint32 `json:"partitions"`
	Revoke     []uint32 `json:"revoke"`
}

// Leased is a message in a member's hands.
type Leased struct {
	Message
	Key        *string   `json:"key"`
	LeaseMS    int64     `json:"lease_ms"`
	LeaseUntil time.Time `json:"lease_until"` // by the node's clock
	Delivery   int       `json:"delivery"`

	Came time.Time `json:"-"` // when it came, by this machine's clock
}

// Place is a record of a topic.
type Place struct {
	Partition uint32 `json:"partition"`
	Offset    int64  `json:"offset"`
}

// Rejected is a record that is not to be delivered again.
type Rejected struct {
	Place
	Reason string `json:"reason"`
}

// Settlement says what became of messages.
type Settlement struct {
	Member string     `json:"member"`
	Epoch  uint64     `json:"epoch"`
	Ack    []Place    `json:"ack,omitempty"`
	Nack   []Place    `json:"nack,omitempty"`
	Extend []Place    `json:"extend,omitempty"`
	Reject []Rejected `json:"reject,omitempty"`
}

// Stale is an entry of a Settlement that was not taken.
type Stale struct {
	Place
	Reason string `json:"reason"`
}

// Move tells where a group is to go on.
type Move struct {
	From    *string          `json:"from,omitempty"`
	Offsets map[uint32]int64 `json:"offsets,omitempty"`
	DryRun  bool             `json:"dry_run,omitempty"`
	Force   bool             `json:"force,omitempty"`
}

func groupPath(topic, more string) string { return under("/groups", topic, more) }

func oneGroup(topic, group, more string) string {
	return groupPath(topic, under("", group, more))
}

// RegisterGroup makes a group, or finds it just so.
func (c *Client) RegisterGroup(ctx context.Context, topic string, s GroupSettings) (created bool, err error) {
	status, err := c.call(ctx, http.MethodPost, groupPath(topic, "/register"), nil, s, nil)
	return status == http.StatusCreated, err
}

// Groups lists the groups of a topic.
func (c *Client) Groups(ctx context.Context, topic string) ([]Group, error) {
	return listed[Group](ctx, c, groupPath(topic, "/"), "groups")
}

// Group describes one group.
func (c *Client) Group(ctx context.Context, topic, group string) (g Group, err error) {
	_, err = c.call(ctx, http.MethodGet, oneGroup(topic, group, ""), nil, nil, &g)
	return g, err
}

// DeleteGroup forgets a group.
func (c *Client) DeleteGroup(ctx context.Context, topic, group string) error {
	_, err := c.call(ctx, http.MethodDelete, oneGroup(topic, group, ""), nil, nil, nil)
	return err
}

// MoveGroup moves a group to other offsets, and gives the server's words on it.
func (c *Client) MoveGroup(ctx context.Context, topic, group string, m Move) (json.RawMessage, error) {
	var answer json.RawMessage
	_, err := c.call(ctx, http.MethodPut, oneGroup(topic, group, "/offsets"), nil, m, &answer)
	return oneLine(answer), err
}

// Join begins a life of a member; an empty name has the server choose one.
func (c *Client) Join(ctx context.Context, topic, group, member string) (j Joined, err error) {
	asked := struct {
		Group  string `json:"group"`
		Member string `json:"member,omitempty"`
	}{group, member}
	_, err = c.call(ctx, http.MethodPost, groupPath(topic, "/node"), nil, asked, &j)
	return j, err
}

// Heartbeat says that a member lives, and what it holds.
func (c *Client) Heartbeat(ctx context.Context, topic, group string, j Joined, holds []uint32) (h Held, err error) {
	asked := struct {
		Epoch      uint64   `json:"epoch"`
		Partitions []uint32 `json:"partitions"`
	}{j.Epoch, holds}
	_, err = c.call(ctx, http.MethodPost, oneGroup(topic, group, "/nodes/"+url.PathEscape(j.Member)+"/heartbeat"), nil, asked, &h)
	return h, err
}

// Leave ends a member's life.
func (c *Client) Leave(ctx context.Context, topic, group string, j Joined) error {
	q := url.Values{"epoch": {strconv.FormatUint(j.Epoch, 10)}}
	_, err := c.call(ctx, http.MethodDelete, oneGroup(topic, group, "/nodes/"+url.PathEscape(j.Member)), q, nil, nil)
	return err
}

// Take asks for messages, and waits for the first.
func (c *Client) Take(ctx context.Context, topic, group string, j Joined, limit int, wait time.Duration) ([]Leased, error) {
	var answer struct {
		Messages []json.RawMessage `json:"messages"`
	}
	q := url.Values{
		"member": {j.Member}, "epoch": {strconv.FormatUint(j.Epoch, 10)},
		"limit": {strconv.Itoa(limit)}, "wait": {wait.String()},
	}
	if _, err := c.call(ctx, http.MethodGet, oneGroup(topic, group, "/messages"), q, nil, &answer); err != nil {
		return nil, err
	}
	all, came := make([]Leased, len(answer.Messages)), time.Now()
	for i, raw := range answer.Messages {
		if err := json.Unmarshal(raw, &all[i]); err != nil {
			return nil, err
		}
		all[i].Raw, all[i].Came = oneLine(raw), came
	}
	return all, nil
}

// Settle says what became of messages, and tells which entries were not taken.
func (c *Client) Settle(ctx context.Context, topic, group string, s Settlement) ([]Stale, error) {
	var answer struct {
		Stale []Stale `json:"stale"`
	}
	_, err := c.call(ctx, http.MethodPost, oneGroup(topic, group, "/ack"), nil, s, &answer)
	return answer.Stale, err
}

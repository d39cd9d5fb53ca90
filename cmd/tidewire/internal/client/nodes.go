package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"
)

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
	return withRaw(b, (*plain)(n), &n.Raw)
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

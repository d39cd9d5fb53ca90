package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
)

// Joined is a life of a group's member.
type Joined struct {
	Member     string `json:"member"`
	Epoch      uint64 `json:"epoch"`
	Heartbeat  string `json:"heartbeat"`
	Session    string `json:"session"`
	Partitions []int  `json:"partitions"`
}

// Leased is a message in a member's hands.
type Leased struct {
	Message
	LeaseUntil string `json:"lease_until"`
	LeaseMS    int64  `json:"lease_ms"`
	Delivery   int    `json:"delivery"`
}

// At names a record.
type At struct {
	Partition int   `json:"partition"`
	Offset    int64 `json:"offset"`
}

// Settlement says what became of leased messages.
type Settlement struct {
	Member string        `json:"member"`
	Epoch  uint64        `json:"epoch"`
	Ack    []At          `json:"ack,omitempty"`
	Nack   []At          `json:"nack,omitempty"`
	Extend []At          `json:"extend,omitempty"`
	Reject []RejectionAt `json:"reject,omitempty"`
}

// RejectionAt is a record that is never to be delivered again.
type RejectionAt struct {
	At
	Reason string `json:"reason"`
}

// StaleAt is an entry of a Settlement that was not taken.
type StaleAt struct {
	At
	Reason string `json:"reason"`
}

// GroupInfo is a group's description.
type GroupInfo struct {
	Group   string `json:"group"`
	Mode    string `json:"mode"`
	Members []struct {
		Member     string `json:"member"`
		Node       string `json:"node"`
		Since      string `json:"since"`
		Partitions []int  `json:"partitions"`
	} `json:"members"`
	Partitions []GroupPartition `json:"partitions"`
}

// GroupPartition is how far a group has come on a partition; nil: nobody could say.
type GroupPartition struct {
	Partition     int     `json:"partition"`
	Member        *string `json:"member"`
	Committed     *int64  `json:"committed"`
	InFlight      *int64  `json:"in_flight"`
	End           *int64  `json:"end"`
	Lag           *int64  `json:"lag"`
	OldestUnacked *string `json:"oldest_unacked"`
	Redelivered   *int64  `json:"redelivered"`
	Dead          *int64  `json:"dead"`
	Expired       *int64  `json:"expired"`
}

// RecordStatus is what became of a record in one group.
type RecordStatus struct {
	Group      string `json:"group"`
	Status     string `json:"status"`
	Member     string `json:"member"`
	LeaseUntil string `json:"lease_until"`
	Delivery   int    `json:"delivery"`
}

// Refused is a refusal of a call about a group.
type Refused struct {
	Call string
	Problem
}

func (r *Refused) Error() string {
	return fmt.Sprintf("%s: %d %s: %s", r.Call, r.Status, r.Code, r.Detail)
}

// json calls with a body and reads the answer, if its status is below 300.
func (a *API) json(ctx context.Context, method, path string, in, out any) (int, error) {
	body := ""
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return 0, err
		}
		body = string(b)
	}
	kind := ""
	if body != "" {
		kind = "application/json"
	}
	ans, err := a.Do(ctx, method, path, kind, body)
	if err != nil {
		return 0, err
	}
	if ans.Status >= 300 {
		return ans.Status, refusal(method+" "+path, ans)
	}
	if out == nil || ans.Body == "" {
		return ans.Status, nil
	}
	if err := json.Unmarshal([]byte(ans.Body), out); err != nil {
		return ans.Status, fmt.Errorf("%s %s: %w: %.300s", method, path, err, ans.Body)
	}
	return ans.Status, nil
}

// RegisterGroup makes a group; settings is the inside of a JSON object.
func (a *API) RegisterGroup(ctx context.Context, topic, group, settings string) (status int, err error) {
	body := fmt.Sprintf(`{"group":%q`, group)
	if settings != "" {
		body += "," + settings
	}
	return a.json(ctx, http.MethodPost, "/groups/"+topic+"/register", json.RawMessage(body+"}"), nil)
}

// JoinGroup begins a life of a member; an empty name has the server choose one.
func (a *API) JoinGroup(ctx context.Context, topic, group, member string) (j Joined, err error) {
	asked := map[string]string{"group": group}
	if member != "" {
		asked["member"] = member
	}
	_, err = a.json(ctx, http.MethodPost, "/groups/"+topic+"/node", asked, &j)
	return j, err
}

// Heartbeat says that a member lives and what it holds; it gives what it owns and what it
// is to let go of.
func (a *API) Heartbeat(ctx context.Context, topic, group string, j Joined, holds []int) (partitions, revoke []int, err error) {
	var answer struct {
		Epoch      uint64 `json:"epoch"`
		Partitions []int  `json:"partitions"`
		Revoke     []int  `json:"revoke"`
	}
	if holds == nil {
		holds = []int{}
	}
	_, err = a.json(ctx, http.MethodPost, "/groups/"+topic+"/"+group+"/nodes/"+j.Member+"/heartbeat", map[string]any{"epoch": j.Epoch, "partitions": holds}, &answer)
	return answer.Partitions, answer.Revoke, err
}

// LeaveGroup ends a member's life.
func (a *API) LeaveGroup(ctx context.Context, topic, group, member string) error {
	_, err := a.json(ctx, http.MethodDelete, "/groups/"+topic+"/"+group+"/nodes/"+member, nil, nil)
	return err
}

// TakeMessages asks for messages to be leased.
func (a *API) TakeMessages(ctx context.Context, topic, group string, j Joined, limit int, wait string) ([]Leased, error) {
	q := url.Values{"member": {j.Member}, "epoch": {strconv.FormatUint(j.Epoch, 10)}, "limit": {strconv.Itoa(limit)}, "wait": {wait}}
	var answer struct {
		Messages []Leased `json:"messages"`
	}
	if _, err := a.json(ctx, http.MethodGet, "/groups/"+topic+"/"+group+"/messages?"+q.Encode(), nil, &answer); err != nil {
		return nil, err
	}
	for i := range answer.Messages {
		if err := answer.Messages[i].check(); err != nil {
			return nil, err
		}
	}
	return answer.Messages, nil
}

// Settle says what became of messages and tells what was not taken of that.
func (a *API) Settle(ctx context.Context, topic, group string, s Settlement) ([]StaleAt, error) {
	var answer struct {
		Stale []StaleAt `json:"stale"`
	}
	_, err := a.json(ctx, http.MethodPost, "/groups/"+topic+"/"+group+"/ack", s, &answer)
	return answer.Stale, err
}

// Group describes a group.
func (a *API) Group(ctx context.Context, topic, group string) (info GroupInfo, err error) {
	_, err = a.json(ctx, http.MethodGet, "/groups/"+topic+"/"+group, nil, &info)
	return info, err
}

// RecordStatus tells what became of a record in each group.
func (a *API) RecordStatus(ctx context.Context, topic string, partition int, offset int64) ([]RecordStatus, error) {
	var answer struct {
		Groups []RecordStatus `json:"groups"`
	}
	_, err := a.json(ctx, http.MethodGet, fmt.Sprintf("/topics/%s/%d/%d/status", topic, partition, offset), nil, &answer)
	return answer.Groups, err
}

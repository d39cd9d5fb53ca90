package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// NodeInfo is a node's description.
type NodeInfo struct {
	ID         string   `json:"id"`
	Name       string   `json:"name"`
	Zone       string   `json:"zone"`
	Roles      []string `json:"roles"`
	State      string   `json:"state"`
	Partitions struct {
		Led      int `json:"led"`
		Followed int `json:"followed"`
	} `json:"partitions"`
	CoordinatorLeader bool              `json:"coordinator_leader"`
	Moves             []json.RawMessage `json:"moves"`
	Connections       *int64            `json:"connections"`
	Uptime            string            `json:"uptime"`
	Disk              struct {
		Free int64 `json:"free"`
	} `json:"disk"`
}

// NodesInfo is the answer to GET /nodes/.
type NodesInfo struct {
	Nodes             []NodeInfo `json:"nodes"`
	CoordinatorLeader string     `json:"coordinator_leader"`
}

// Find is the node with a name, one that lives before one that was lost.
func (n *NodesInfo) Find(name string) (found NodeInfo, ok bool) {
	for _, x := range n.Nodes {
		if x.Name == name && (!ok || found.State == "dead") {
			found, ok = x, true
		}
	}
	return found, ok
}

// TryNodes lists the nodes as one node knows them.
func (a *API) TryNodes(ctx context.Context) (NodesInfo, error) {
	var info NodesInfo
	return info, a.get(ctx, "/nodes/", &info)
}

// TryTopic describes a topic, of a node that may be down.
func (a *API) TryTopic(ctx context.Context, name string) (TopicInfo, error) {
	var info TopicInfo
	return info, a.get(ctx, "/topics/"+name+"/metadata", &info)
}

// Alert is one alert.
type Alert struct {
	Name      string `json:"alert"`
	State     string `json:"state"`
	Node      string `json:"node"`
	Topic     string `json:"topic"`
	Partition *int   `json:"partition"`
}

// TryAlerts lists the alerts as they came, and each by itself.
func (a *API) TryAlerts(ctx context.Context) ([]Alert, string, error) {
	var answer struct {
		Alerts []Alert `json:"alerts"`
	}
	var raw json.RawMessage
	if err := a.get(ctx, "/alerts", &raw); err != nil {
		return nil, "", err
	}
	return answer.Alerts, string(raw), json.Unmarshal(raw, &answer)
}

func (a *API) get(ctx context.Context, path string, into any) error {
	ans, err := a.Do(ctx, http.MethodGet, path, "", "")
	if err != nil {
		return err
	}
	if ans.Status != http.StatusOK {
		return fmt.Errorf("GET %s: %d %.300s", path, ans.Status, ans.Body)
	}
	if err := json.Unmarshal([]byte(ans.Body), into); err != nil {
		return fmt.Errorf("GET %s: %w: %.300s", path, err, ans.Body)
	}
	return nil
}

package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"tidewire/internal/ident"
)

// PartitionInfo is one partition of a description.
type PartitionInfo struct {
	ID          int      `json:"id"`
	Lo          uint64   `json:"lo"`
	Hi          uint64   `json:"hi"`
	Parents     []int    `json:"parents"`
	Children    []int    `json:"children"`
	State       string   `json:"state"`
	Leader      string   `json:"leader"`
	LeaderEpoch int64    `json:"leader_epoch"`
	Replicas    []string `json:"replicas"`
	ISR         []string `json:"isr"`
	Earliest    int64    `json:"earliest"` // -1: nobody could say
	HW          int64    `json:"hw"`       // likewise
}

// UnmarshalJSON reads a description.
func (p *PartitionInfo) UnmarshalJSON(b []byte) error {
	type plain PartitionInfo
	known := plain{Earliest: -1, HW: -1} // null leaves them
	if err := json.Unmarshal(b, &known); err != nil {
		return err
	}
	*p = PartitionInfo(known)
	return nil
}

// TopicInfo is a topic's description.
type TopicInfo struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	Replicas   int    `json:"replicas"`
	MinInsync  int    `json:"min_insync"`
	Compaction bool   `json:"compaction"`
	Retention  struct {
		Age   string `json:"age"`
		Bytes int64  `json:"bytes"`
	} `json:"retention"`
	MaxMessageBytes   int64  `json:"max_message_bytes"`
	Durability        string `json:"durability"`
	Unclean           bool   `json:"unclean"`
	IdempotencyWindow string `json:"idempotency_window"`
	Layout            struct {
		Generation int             `json:"generation"`
		Partitions []PartitionInfo `json:"partitions"`
	} `json:"layout"`
}

// creating bounds how long a topic is asked for.
const creating = 30 * time.Second

// CreateTopic makes a topic; settings is what follows the name in the body, as
// `"partitions":4`. Where no coordinator leads at the moment, which a busy machine may
// bring about, it asks again, as everybody is told to.
func (a *API) CreateTopic(t testing.TB, name, settings string) TopicInfo {
	t.Helper()
	body := `{"name":"` + name + `"`
	if settings != "" {
		body += "," + settings
	}
	begun := false // a call that was refused so may have been carried out
	for end := time.Now().Add(creating); ; {
		ans, err := a.Do(t.Context(), http.MethodPost, "/topics/", "application/json", body+"}")
		switch {
		case err != nil:
			t.Fatalf("create %s: %v", name, err)
		case ans.Status == http.StatusCreated, ans.Status == http.StatusOK && begun:
			return ParseTopic(t, ans.Body)
		case ans.Status != http.StatusServiceUnavailable, !strings.Contains(ans.Body, `"code":"coordinator-unavailable"`), time.Now().After(end):
			t.Fatalf("create %s: %d: %.500s", name, ans.Status, ans.Body)
		}
		begun = true
	}
}

// Topic describes a topic.
func (a *API) Topic(t testing.TB, name string) TopicInfo {
	t.Helper()
	return ParseTopic(t, a.Must(t, http.StatusOK, http.MethodGet, "/topics/"+name+"/metadata", "", "").Body)
}

// TopicInfo asks for a topic's description, of a node that may not answer.
func (a *API) TopicInfo(ctx context.Context, name string) (info TopicInfo, err error) {
	_, err = a.json(ctx, http.MethodGet, "/topics/"+name+"/metadata", nil, &info)
	return info, err
}

// ParseTopic reads a description.
func ParseTopic(t testing.TB, answer string) TopicInfo {
	t.Helper()
	var info TopicInfo
	if err := json.Unmarshal([]byte(answer), &info); err != nil {
		t.Fatalf("a description is not as expected: %v: %s", err, answer)
	}
	return info
}

// PartitionOf is the partition that owns a key.
func (info *TopicInfo) PartitionOf(key string) int {
	h := uint64(ident.KeyHash(key))
	i := slices.IndexFunc(info.Layout.Partitions, func(p PartitionInfo) bool { return h >= p.Lo && h < p.Hi })
	if i < 0 {
		panic(fmt.Sprintf("no partition of %s owns hash %d", info.Name, h))
	}
	return info.Layout.Partitions[i].ID
}

// KeyFor makes a key with a prefix that a partition owns.
func (info *TopicInfo) KeyFor(partition int, prefix string) string {
	for i := 0; ; i++ {
		if key := fmt.Sprintf("%s%d", prefix, i); info.PartitionOf(key) == partition {
			return key
		}
	}
}

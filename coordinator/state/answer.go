package state

import (
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// Answer says what a command did.
type Answer struct {
	Index   uint64 // of the entry that first carried the request
	Created bool   // Create made a topic; false: it was there already
	Epoch   ident.BrokerEpoch
	Cluster ident.ClusterID
	// Topic as the change left it; for a repeated request as it is now, nil
	// if it has gone since.
	Topic   *cluster.Topic
	Refusal *Refusal // the command changed nothing, and why
}

// remembered is an answer as the table of recent requests keeps it.
type remembered struct {
	Request RequestID
	Index   uint64
	Created bool              `json:",omitempty"`
	Epoch   ident.BrokerEpoch `json:",omitempty"`
	Topic   *ident.TopicID    `json:",omitempty"`
	Refusal *Refusal          `json:",omitempty"`
}

// Refusal is a client's error as the log keeps it.
type Refusal = cluster.Refusal

func refuse(kind fault.Kind, detail string) *Refusal {
	return &Refusal{Code: kind.Code(), Detail: detail}
}

// maxAnswers bounds the table of recent answers. A retry follows within
// seconds; 1,024 changes of metadata take longer than any retry lasts.
const maxAnswers = 1024

// answers is a ring of the latest answers and an index into it.
type answers struct {
	ring []remembered // oldest first from next on, once it is full
	next int
	find map[RequestID]int
}

func newAnswers(oldestFirst []remembered) answers {
	a := answers{find: make(map[RequestID]int, len(oldestFirst))}
	for _, r := range oldestFirst {
		a.add(r)
	}
	return a
}

func (a *answers) add(r remembered) {
	if len(a.ring) < maxAnswers {
		a.find[r.Request] = len(a.ring)
		a.ring = append(a.ring, r)
		return
	}
	delete(a.find, a.ring[a.next].Request)
	a.ring[a.next] = r
	a.find[r.Request] = a.next
	a.next = (a.next + 1) % maxAnswers
}

func (a *answers) get(id RequestID) (remembered, bool) {
	i, ok := a.find[id]
	if !ok {
		return remembered{}, false
	}
	return a.ring[i], true
}

// oldestFirst copies the table.
func (a *answers) oldestFirst() []remembered {
	out := make([]remembered, 0, len(a.ring))
	out = append(out, a.ring[a.next:]...)
	return append(out, a.ring[:a.next]...)
}

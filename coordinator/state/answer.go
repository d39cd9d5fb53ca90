package state

import (
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// remembered is an answer as the table of recent requests keeps it.
type remembered struct {
	Request RequestID
	Index   uint64
	Created bool              `json:",omitempty"`
	Epoch   ident.BrokerEpoch `json:",omitempty"`
	Topic   *ident.TopicID    `json:",omitempty"`
	Taken   string            `json:",omitempty"` // a 0 or 1 for each part
	Refusal *cluster.Refusal  `json:",omitempty"`
	Group   *ident.GroupID    `json:",omitempty"`
	Member  ident.MemberEpoch `json:",omitempty"`
}

func remember(id RequestID, a *cluster.Answer) remembered {
	r := remembered{Request: id, Index: a.Index, Created: a.Created, Epoch: a.Epoch, Refusal: a.Refusal, Member: a.Member}
	if a.Topic != nil {
		r.Topic = &a.Topic.ID
	}
	if a.Group != nil {
		r.Group = &a.Group.ID
	}
	for _, taken := range a.Taken {
		if taken {
			r.Taken += "1"
		} else {
			r.Taken += "0"
		}
	}
	return r
}

func (r *remembered) taken() []bool {
	var all []bool
	for _, c := range []byte(r.Taken) {
		all = append(all, c == '1')
	}
	return all
}

func refuse(kind fault.Kind, detail string) *cluster.Refusal {
	return &cluster.Refusal{Code: kind.Code(), Detail: detail}
}

// maxAnswers bounds the table of recent answers. A retry follows within
// seconds; this many changes take longer than any retry lasts.
const maxAnswers = 4096

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

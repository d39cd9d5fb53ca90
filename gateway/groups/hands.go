package groups

import (
	"context"
	"sync"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// hands are what members who take here hold, as their leaders said last. A leader bounds what
// it leases itself; only where a member takes is known what it has of all of them.
type hands struct {
	mu *sync.Mutex
	of map[cluster.MemberLife]*hand
}

// hand is what one life of a member holds.
type hand struct {
	all    *hands
	life   cluster.MemberLife
	users  int
	taking chan struct{} // has one entry while somebody takes for this life

	held  map[ident.NodeID]int // by leader
	takes map[ident.NodeID]int // that were made of it
	news  map[chan struct{}]struct{}
}

func newHands() hands { return hands{mu: new(sync.Mutex), of: map[cluster.MemberLife]*hand{}} }

// begin finds a life's hand, for as long as it takes; end ends that.
func (all *hands) begin(life cluster.MemberLife) *hand {
	all.mu.Lock()
	defer all.mu.Unlock()
	h := all.of[life]
	if h == nil {
		h = &hand{all: all, life: life, taking: make(chan struct{}, 1), held: map[ident.NodeID]int{}, takes: map[ident.NodeID]int{}, news: map[chan struct{}]struct{}{}}
		all.of[life] = h
	}
	h.users++
	return h
}

func (h *hand) end() {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	if h.users--; h.users == 0 {
		delete(h.all.of, h.life)
	}
}

// listen gives word whenever the member has settled something here.
func (h *hand) listen() (news chan struct{}, end func()) {
	news = make(chan struct{}, 1)
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	h.news[news] = struct{}{}
	return news, func() {
		h.all.mu.Lock()
		defer h.all.mu.Unlock()
		delete(h.news, news)
	}
}

// settled gives word that a life may hold less.
func (all *hands) settled(life cluster.MemberLife) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if h := all.of[life]; h != nil {
		for news := range h.news {
			select {
			case news <- struct{}{}:
			default:
			}
		}
	}
}

// made counts the takes of a leader: what it says is of a time after so many.
func (h *hand) made(leader ident.NodeID) int {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	return h.takes[leader]
}

// says takes in what a leader knows, if nothing was taken of it since it was asked.
func (h *hand) says(leader ident.NodeID, held, takes int) {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	if h.takes[leader] == takes {
		h.held[leader] = held
	}
}

// counts notes a take, before it is made.
func (h *hand) counts(leader ident.NodeID) (takes int) {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	h.takes[leader]++
	return h.takes[leader]
}

// keep forgets what others than these leaders said.
func (h *hand) keep(leads func(ident.NodeID) bool) {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	for leader := range h.held {
		if !leads(leader) {
			delete(h.held, leader)
		}
	}
}

// at is how many records the member holds of one leader, and of all.
func (h *hand) at(leader ident.NodeID) (here, all int) {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	for _, n := range h.held {
		all += n
	}
	return h.held[leader], all
}

// take lets one take at a time, so that two do not take for the same room. False: ctx ended.
func (h *hand) take(ctx context.Context, do func()) bool {
	select {
	case h.taking <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-h.taking }()
	do()
	return true
}

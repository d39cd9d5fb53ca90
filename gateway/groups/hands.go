package groups

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// hands are what members who take here hold, as their leaders said last, and which answers of
// theirs came. A leader bounds what it leases itself; only where a member takes is known what
// it has of all of them.
type hands struct {
	taker uint64        // this process, to leaders
	left  chan struct{} // has one entry while there may be something to tell to leaders

	mu    *sync.Mutex
	takes uint64 // numbers of all lives
	// forgotten are the takes up to this one that pass for heard: a leader could not be told
	// for so long what came of some of them that it is not known any more.
	forgotten uint64
	of        map[cluster.MemberLife]*hand
	// restless are those of which leaders are to be told something.
	restless map[*hand]struct{}
}

// hand is what one life of a member holds.
type hand struct {
	all    *hands
	life   cluster.MemberLife
	users  int
	until  time.Time              // who left then tells no longer what came
	taking chan struct{}          // has one entry while somebody takes for this life
	lines  map[ident.NodeID]*line // by leader
	news   map[chan struct{}]struct{}
}

func newHands() hands {
	return hands{taker: rand.Uint64() | 1, left: make(chan struct{}, 1), mu: new(sync.Mutex), of: map[cluster.MemberLife]*hand{}, restless: map[*hand]struct{}{}}
}

// begin finds a life's hand, for as long as it takes; end ends that.
func (all *hands) begin(life cluster.MemberLife) *hand {
	all.mu.Lock()
	defer all.mu.Unlock()
	h := all.of[life]
	if h == nil {
		h = &hand{all: all, life: life, taking: make(chan struct{}, 1), lines: map[ident.NodeID]*line{}, news: map[chan struct{}]struct{}{}}
		all.of[life] = h
	}
	h.users++
	return h
}

func (h *hand) end() {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	if h.users--; h.users > 0 {
		return
	}
	for _, l := range h.lines {
		if len(l.open) > 0 {
			h.restLocked()
			return
		}
	}
	delete(h.all.of, h.life)
	delete(h.all.restless, h)
}

// restLocked has leaders told what is open.
func (h *hand) restLocked() {
	h.until = time.Now().Add(tellTime)
	h.all.restless[h] = struct{}{}
	nudge(h.all.left)
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
			nudge(news)
		}
	}
}

func (h *hand) lineLocked(leader ident.NodeID) *line {
	l := h.lines[leader]
	if l == nil {
		l = &line{made: h.all.takes, open: map[ident.Partition]open{}}
		h.lines[leader] = l
	}
	return l
}

// call is what a call to a leader says of what was taken there: which takes are over, and of
// each partition the latest of which leases came.
func (h *hand) call(leader ident.NodeID, of []ident.Partition) (call uint64, heard []uint64) {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	l := h.lineLocked(leader)
	return l.call(), l.heard(of, h.all.forgotten)
}

// calls fills in what a settlement for a life says. Who has taken nothing here says nothing.
func (all *hands) calls(leader ident.NodeID, s *rpc.Settle) {
	all.mu.Lock()
	defer all.mu.Unlock()
	h := all.of[s.MemberLife]
	if h == nil || h.lines[leader] == nil {
		return
	}
	l := h.lines[leader]
	s.Taker, s.Call = all.taker, l.call()
	for i := range s.Of {
		s.Of[i].Heard = max(l.open[s.Of[i].Partition].came, all.forgotten)
	}
}

// told notes that a leader has had what a settlement said.
func (all *hands) told(leader ident.NodeID, s *rpc.Settle, done []rpc.SettledOf) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if h := all.of[s.MemberLife]; h != nil && h.lines[leader] != nil {
		for i := range done {
			if done[i].Err == nil {
				h.lines[leader].told(s.Call, done[i].Partition)
			}
		}
	}
}

// says takes in what a leader knows, and that it has heard what it was told. How much the
// member holds counts where nothing was taken since it was asked.
func (h *hand) says(leader ident.NodeID, call uint64, t rpc.Taken) {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	l := h.lineLocked(leader)
	for i := range t.Of {
		if t.Of[i].Err == nil {
			l.told(call, t.Of[i].Partition)
		}
	}
	if !l.under && l.made < call {
		l.held = t.Held
	}
}

// beginTake notes a take before it is made, and fills in what it says of those before.
func (h *hand) beginTake(leader ident.NodeID, t *rpc.Take) {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	h.all.takes++
	l := h.lineLocked(leader)
	t.Taker, t.Call, t.Heard = h.all.taker, h.all.takes, l.heard(t.Partitions, h.all.forgotten)
	l.begin(h.all.takes, t.Index, t.Partitions)
}

// endTake notes what came of a take.
func (h *hand) endTake(leader ident.NodeID, call uint64, taken rpc.Taken, err error) {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	l := h.lineLocked(leader)
	if err != nil {
		taken = rpc.Taken{}
	}
	if l.end(call, taken.Of); err == nil && l.made == call {
		l.held = taken.Held
	}
}

// lose notes that the client did not have what came of a take.
func (h *hand) lose(leader ident.NodeID, call uint64) {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	if l := h.lines[leader]; l != nil {
		l.lose(call)
	}
}

// aim says which partitions are the member's own, by leader. What others said counts no more.
func (h *hand) aim(of map[ident.NodeID][]ident.Partition) {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	for leader, l := range h.lines {
		refs := of[leader]
		if l.aim(refs) {
			h.restLocked()
		}
		if refs == nil {
			l.held = 0
		}
		if refs == nil && len(l.open) == 0 && !l.under {
			delete(h.lines, leader)
		}
	}
}

// at is how many records the member holds of one leader, and of all.
func (h *hand) at(leader ident.NodeID) (here, all int) {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	for _, l := range h.lines {
		all += l.held
	}
	if l := h.lines[leader]; l != nil {
		here = l.held
	}
	return here, all
}

// inTurn lets one take at a time, so that two do not take for the same room. False: ctx ended.
func (h *hand) inTurn(ctx context.Context, do func()) bool {
	select {
	case h.taking <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-h.taking }()
	do()
	return true
}

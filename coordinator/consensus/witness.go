package consensus

import (
	"context"
	"sync"

	"github.com/hashicorp/raft"
)

// witness remembers which heartbeats were answered, by when they were sent.
//
// raft's own proof of leadership counts any answer that is read after the proof was
// asked for, also one to a heartbeat that was sent long before: it may lie in a socket
// while this process is paused and the others elect another leader. It counts members
// without a vote, too. So a proof here is a heartbeat that was sent after it was asked
// for, answered by a majority of those who vote.
type witness struct {
	mu       sync.Mutex
	clock    uint64 // counts heartbeats and proofs, in the order in which they began
	answered map[raft.ServerID]answered
	changed  chan struct{} // closed when answered changes
}

// answered is the latest heartbeat that one member has agreed to.
type answered struct {
	sent uint64
	term uint64
}

func newWitness() *witness {
	return &witness{answered: map[raft.ServerID]answered{}, changed: make(chan struct{})}
}

// now is before everything that begins later.
func (w *witness) now() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock++
	return w.clock
}

// agreed notes that a member has agreed to a heartbeat of the leader of a term.
func (w *witness) agreed(id raft.ServerID, sent, term uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if sent < w.answered[id].sent {
		return // two connections; the later one's answer came first
	}
	w.answered[id] = answered{sent, term}
	close(w.changed)
	w.changed = make(chan struct{})
}

// majority waits until most voters have agreed to a heartbeat of the term sent after
// a moment, or until ctx ends. This node, which asks, agrees with itself.
func (w *witness) majority(ctx context.Context, after, term uint64, self raft.ServerID, voters []raft.ServerID) error {
	for {
		agree, changed := w.count(after, term, self, voters)
		if agree > len(voters)/2 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (w *witness) count(after, term uint64, self raft.ServerID, voters []raft.ServerID) (agree int, changed <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range voters {
		if a := w.answered[id]; id == self || a.sent > after && a.term == term {
			agree++
		}
	}
	return agree, w.changed
}

func voters(c raft.Configuration) (ids []raft.ServerID) {
	for _, s := range c.Servers {
		if s.Suffrage == raft.Voter {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

// prove returns once a majority of those who vote has confirmed that this node leads,
// at a moment after the call.
func (w *witness) prove(ctx context.Context, r *raft.Raft, self raft.ServerID, verify func(context.Context) error) error {
	after := w.now()
	if err := verify(ctx); err != nil {
		return err
	}
	return w.majority(ctx, after, r.CurrentTerm(), self, voters(r.GetConfiguration().Configuration()))
}

package consensus

import (
	"sync"

	"github.com/hashicorp/raft"
)

// herald tells the other members at once of what is committed.
//
// raft tells them with the entries that come next, or when its CommitTimeout is over:
// a change that nothing follows is known to them 50 to 100 ms after it was answered.
// So each that has kept the entries is sent a request without any: the entry before is
// the latest one that it has, and what is committed is no later than that. Its log up to
// there is the leader's, so it says no more than raft's own would, whenever it arrives.
// Who has yet to keep them would refuse it, and is told when it has.
type herald struct {
	send    func(raft.ServerID, raft.ServerAddress, *raft.AppendEntriesRequest) (taken bool)
	sending sync.WaitGroup

	mu        sync.Mutex
	committed uint64 // what the others are to know
	members   map[raft.ServerID]*hearer
	closed    bool
}

// hearer is what one member was sent in a leader's term, and has kept.
type hearer struct {
	at      raft.ServerAddress
	form    raft.AppendEntriesRequest // what raft says of itself in each request
	kept    entryID
	told    uint64 // of what is committed
	telling bool
}

// entryID names an entry: with the same two, two logs are the same up to there.
type entryID struct{ index, term uint64 }

func newHerald(send func(raft.ServerID, raft.ServerAddress, *raft.AppendEntriesRequest) bool) *herald {
	return &herald{send: send, members: map[raft.ServerID]*hearer{}}
}

// sent notes a request of raft's.
func (h *herald) sent(id raft.ServerID, at raft.ServerAddress, args *raft.AppendEntriesRequest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.members[id]
	if m == nil || m.form.Term < args.Term {
		m = &hearer{form: raft.AppendEntriesRequest{RPCHeader: args.RPCHeader, Term: args.Term}}
		h.members[id] = m
	}
	if m.form.Term == args.Term {
		m.at, m.told = at, max(m.told, args.LeaderCommitIndex)
	}
}

// answered notes the answer to one. What comes is in the order of a connection, and of
// two connections the one with more counts.
func (h *herald) answered(id raft.ServerID, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) {
	if !resp.Success {
		return
	}
	kept := entryID{args.PrevLogEntry, args.PrevLogTerm}
	if n := len(args.Entries); n > 0 {
		kept = entryID{args.Entries[n-1].Index, args.Entries[n-1].Term}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if m := h.members[id]; m != nil && m.form.Term == args.Term && m.kept.index < kept.index {
		m.kept = kept
		h.tellLocked(id, m)
	}
}

// announce tells everybody of an index, which is committed.
func (h *herald) announce(index uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.committed = max(h.committed, index)
	for id, m := range h.members {
		h.tellLocked(id, m)
	}
}

func (h *herald) tellLocked(id raft.ServerID, m *hearer) {
	if h.closed || m.telling || m.told >= h.committed || m.kept.index < h.committed {
		return
	}
	args := m.form
	args.PrevLogEntry, args.PrevLogTerm, args.LeaderCommitIndex = m.kept.index, m.kept.term, h.committed
	at := m.at
	m.telling = true
	h.sending.Go(func() {
		taken := h.send(id, at, &args)
		h.mu.Lock()
		defer h.mu.Unlock()
		m.telling = false
		if taken && h.members[id] == m { // else raft tells it, a little later
			m.told = max(m.told, args.LeaderCommitIndex)
			h.tellLocked(id, m)
		}
	})
}

// close waits until nothing is under way any more.
func (h *herald) close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.sending.Wait()
}

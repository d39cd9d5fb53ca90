package consensus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/raft"

	"tidewire/internal/ident"
)

// Member is a coordinator of the configuration in force.
type Member struct {
	ID      ident.NodeID
	Address string
	Voter   bool // the others only follow
}

// Members are the coordinators as this node knows them; none before it was taken in.
func (n *Node) Members() []Member {
	if n.raft == nil {
		return nil
	}
	var all []Member
	for _, s := range n.raft.GetConfiguration().Configuration().Servers {
		id, err := uuid.Parse(string(s.ID))
		if err != nil {
			continue // nobody but this package names servers, and it takes ids alone
		}
		all = append(all, Member{ID: ident.NodeID(id), Address: string(s.Address), Voter: s.Suffrage == raft.Voter})
	}
	return all
}

// changeLimit bounds one change of the configuration: it is an entry like any other.
const changeLimit = 5 * time.Second

// Add takes a coordinator in without a vote, or notes another address of one that is
// in. The leader alone can do it, as with all changes of the configuration; raft
// takes one only when the one before it is committed.
func (n *Node) Add(ctx context.Context, id ident.NodeID, address string) error {
	return n.change(ctx, "take in", id, func() raft.Future {
		return n.raft.AddNonvoter(raft.ServerID(id.String()), raft.ServerAddress(address), 0, changeLimit)
	})
}

// Promote gives a vote to one that was taken in.
func (n *Node) Promote(ctx context.Context, id ident.NodeID, address string) error {
	return n.change(ctx, "give a vote to", id, func() raft.Future {
		return n.raft.AddVoter(raft.ServerID(id.String()), raft.ServerAddress(address), 0, changeLimit)
	})
}

// Remove takes a coordinator out. Its raft stops once it learns of it.
func (n *Node) Remove(ctx context.Context, id ident.NodeID) error {
	return n.change(ctx, "take out", id, func() raft.Future {
		return n.raft.RemoveServer(raft.ServerID(id.String()), 0, changeLimit)
	})
}

// change makes one change at a time: the next one sees the configuration that it left.
//
// raft would take the index that a change builds on, but its GetConfiguration no
// longer tells one (it is always 0): so there is this lock, and the rule that a
// leader makes changes alone.
func (n *Node) change(ctx context.Context, doing string, id ident.NodeID, start func() raft.Future) error {
	select {
	case n.changing <- struct{}{}:
		defer func() { <-n.changing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, changeLimit)
	defer cancel()
	if err := n.commit(ctx, start); err != nil {
		return fmt.Errorf("%s coordinator %s: %w", doing, id, err)
	}
	return nil
}

// NotLeading says whether an error of Add, Promote, Remove, Barrier or Prove is that
// this node does not lead (any more).
func NotLeading(err error) bool {
	return errors.Is(err, raft.ErrNotLeader) || errors.Is(err, raft.ErrLeadershipLost) ||
		errors.Is(err, raft.ErrLeadershipTransferInProgress) || errors.Is(err, raft.ErrRaftShutdown)
}

// Barrier returns once everything that was committed before it is applied here.
func (n *Node) Barrier(ctx context.Context) error {
	return n.commit(ctx, func() raft.Future { return n.raft.Barrier(0) })
}

// Prove returns once a majority has confirmed that this node leads: at a moment after
// the call, no other did.
func (n *Node) Prove(ctx context.Context) error {
	return n.trans.witness.prove(ctx, n.raft, n.id(), func(ctx context.Context) error {
		return n.commit(ctx, func() raft.Future { return n.raft.VerifyLeader() })
	})
}

// Leads tells whether this node leads, as it changes; only the latest is kept.
func (n *Node) Leads() <-chan bool { return n.leads }

func (n *Node) tell(leads bool) {
	select { // an older one that nobody took is out of date
	case <-n.leads:
	default:
	}
	n.leads <- leads // there is room: this is the only sender
}

// Heard is how long ago this node last heard its leader, or led. One whose disk hangs or
// is full hears its leader and can keep nothing of what it says.
func (n *Node) Heard() time.Duration {
	if n.raft == nil {
		return never
	}
	if n.raft.State() == raft.Leader {
		return 0
	}
	at := n.raft.LastContact()
	if at.IsZero() {
		return never
	}
	now := time.Now()
	return max(now.Sub(at), n.store.lacks(now), n.store.stalled(now))
}

// never is longer than anybody waits.
const never = 24 * time.Hour

// reach remembers which members this leader does not reach, as raft's heartbeats
// find it.
type reach struct {
	mu     sync.Mutex
	failed map[raft.ServerID]time.Time
}

// failedFor is how long a failed heartbeat counts: another one follows sooner.
const failedFor = 3 * time.Second

// take is an observer's filter. It runs in raft's own loops and must not wait.
func (r *reach) take(o *raft.Observation) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch seen := o.Data.(type) {
	case raft.FailedHeartbeatObservation:
		if r.failed == nil {
			r.failed = map[raft.ServerID]time.Time{}
		}
		r.failed[seen.PeerID] = time.Now()
	case raft.ResumedHeartbeatObservation:
		delete(r.failed, seen.PeerID)
	}
	return false // nothing goes to the observer's channel
}

// Unreached says whether this node, which leads, does not reach another member.
func (n *Node) Unreached(id ident.NodeID) bool {
	n.reach.mu.Lock()
	defer n.reach.mu.Unlock()
	at, failed := n.reach.failed[raft.ServerID(id.String())]
	return failed && time.Since(at) < failedFor
}

// others says whether somebody else has a vote.
func (n *Node) others() bool {
	for _, s := range n.raft.GetConfiguration().Configuration().Servers {
		if s.Suffrage == raft.Voter && s.ID != n.id() {
			return true
		}
	}
	return false
}

// HandOver gives leadership to another voter, where there is one and this node leads.
func (n *Node) HandOver(ctx context.Context) error {
	if n.raft.State() != raft.Leader || !n.others() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, handOverLimit)
	defer cancel()
	if err := n.await(ctx, n.raft.LeadershipTransfer()); err != nil {
		return fmt.Errorf("hand over the coordinators' leadership: %w", err)
	}
	return nil
}

const handOverLimit = 2 * time.Second

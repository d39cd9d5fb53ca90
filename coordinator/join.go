package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"tidewire/coordinator/consensus"
	"tidewire/internal/cluster"
	"tidewire/internal/control"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/sleep"
)

const (
	// stableFor is how long one that comes must have caught up before it gets a vote.
	stableFor = 500 * time.Millisecond
	// slack is by how many entries a log may lag and still count as caught up: some
	// were written while it told.
	slack = 64
	// askEvery paces the calls of one that waits to be taken in.
	askEvery = 100 * time.Millisecond
	// settledEvery is how often one that is in looks whether it still is.
	settledEvery = 500 * time.Millisecond
	// tellEvery is how long one that is not in waits before it says so, and again.
	tellEvery = 5 * time.Second
	// joinLimit bounds one call.
	joinLimit = 5 * time.Second
)

// enter asks the leading coordinator to take this node in, until it has a vote under
// the address at which it is now; and again, should that change or no leader be heard:
// the others may know this one at another place, or not any more.
func (c *Coordinator) enter(ctx context.Context) error {
	var hint ident.NodeID
	told := time.Now() // when it was last in, or said that it is not
	for {
		pause := settledEvery
		if c.cfg.Peers != nil && !c.settled() {
			pause = askEvery/2 + rand.N(askEvery)
			var err error
			if hint, err = c.ask(ctx, hint); err != nil && time.Since(told) > tellEvery {
				told = time.Now()
				c.cfg.Logger.Warn("this coordinator is not among the others yet", "err", err)
			}
		} else {
			told = time.Now()
		}
		if !sleep.For(ctx, pause) {
			return nil
		}
	}
}

// settled says whether this node has a vote where it is, and hears a leader.
func (c *Coordinator) settled() bool {
	if c.node.Status().Leads {
		return true
	}
	return c.node.Heard() < time.Second && slices.Contains(c.node.Members(), consensus.Member{ID: c.cfg.Node.ID, Address: c.Addr(), Voter: true})
}

// ask calls the others in turn, the leader first, and gives the one that is said to
// lead. The error is the first refusal, where nobody took it in.
func (c *Coordinator) ask(ctx context.Context, hint ident.NodeID) (leader ident.NodeID, refusal error) {
	j := cluster.Join{Node: c.cfg.Node.ID, Raft: c.Addr(), Cluster: c.cluster(), Last: c.node.Status().Last}
	var asked []ident.NodeID
	for _, to := range append([]ident.NodeID{c.leader(), hint}, c.cfg.Others()...) {
		if to == (ident.NodeID{}) || to == c.cfg.Node.ID || slices.Contains(asked, to) {
			continue
		}
		asked = append(asked, to)
		limited, cancel := context.WithTimeout(ctx, joinLimit)
		answer, err := c.cfg.Peers.Join(limited, to, j)
		cancel()
		if err == nil {
			c.learn(answer.Cluster)
			return to, nil
		}
		refusal = cmp.Or(refusal, err)
		c.cfg.Logger.Debug("a coordinator does not take this one in", "to", to.String(), "err", err)
		if leader := control.LeaderIn(err); leader != (ident.NodeID{}) && !slices.Contains(asked, leader) {
			return leader, refusal // asked first the next time
		}
	}
	return ident.NodeID{}, refusal
}

// ServeJoin takes a coordinator in: first without a vote, with one when it has caught
// up and stayed so for stableFor.
func (c *Coordinator) ServeJoin(ctx context.Context, j cluster.Join) (cluster.Joined, error) {
	if c.rules.Load() == nil {
		return cluster.Joined{}, c.notLeading()
	}
	mine := c.cluster()
	if j.Cluster != (ident.ClusterID{}) && j.Cluster != mine {
		return cluster.Joined{}, fault.New(fault.Invalid, "node %s belongs to cluster %s, and this is %s", j.Node, j.Cluster, mine)
	}
	if j.Node == (ident.NodeID{}) || j.Raft == "" {
		return cluster.Joined{}, fault.New(fault.Invalid, "a coordinator that joins has an id and an address")
	}
	select { // one after the other, or two would want the same change
	case c.joins <- struct{}{}:
		defer func() { <-c.joins }()
	case <-ctx.Done():
		return cluster.Joined{}, context.Cause(ctx)
	}
	voter, err := c.take(ctx, j)
	switch {
	case err == nil:
		return cluster.Joined{Cluster: mine, Voter: voter}, nil
	case consensus.NotLeading(err):
		return cluster.Joined{}, c.notLeading()
	}
	return cluster.Joined{}, fault.New(fault.CoordinatorUnavailable, "node %s cannot be taken in now: %w", j.Node, err).After(time.Second)
}

// take makes the change that one that joins needs next, and says whether it votes.
func (c *Coordinator) take(ctx context.Context, j cluster.Join) (voter bool, err error) {
	members := c.node.Members()
	var known *consensus.Member
	for _, m := range members {
		switch {
		case m.ID == j.Node:
			known = &m
		case m.ID == c.cfg.Node.ID && m.Address != c.Addr():
			// The others are to find the leader where it is.
			if at := slices.IndexFunc(members, func(o consensus.Member) bool { return o.Address == c.Addr() }); at >= 0 {
				if err := c.displace(ctx, members[at]); err != nil {
					return false, err
				}
			}
			if err := c.node.Promote(ctx, m.ID, c.Addr()); err != nil {
				return false, err
			}
		case m.Address == j.Raft:
			if err := c.replace(ctx, m, j); err != nil {
				return false, err
			}
		}
	}
	if known != nil && known.Voter && j.Last == 0 {
		// It has lost its log, and what it voted for with it: it must not vote again
		// before it has what others believe it has.
		c.cfg.Logger.Warn("a coordinator comes back without its log and starts anew", "node", j.Node.String())
		if err := c.node.Remove(ctx, j.Node); err != nil {
			return false, err
		}
		known = nil
	}
	switch {
	case known == nil:
		delete(c.caught, j.Node)
		c.cfg.Logger.Info("a coordinator joins", "node", j.Node.String(), "raft", j.Raft)
		return false, c.node.Add(ctx, j.Node, j.Raft)
	case known.Voter && known.Address != j.Raft:
		return true, c.node.Promote(ctx, j.Node, j.Raft)
	case known.Voter:
		return true, nil
	case known.Address != j.Raft:
		return false, c.node.Add(ctx, j.Node, j.Raft)
	}
	now := time.Now()
	if j.Last+slack < c.node.Status().Last || j.Last == 0 {
		delete(c.caught, j.Node)
		return false, nil
	}
	since, caught := c.caught[j.Node]
	if !caught {
		c.caught[j.Node] = now
		return false, nil
	}
	if now.Sub(since) < stableFor {
		return false, nil
	}
	delete(c.caught, j.Node)
	c.cfg.Logger.Info("a coordinator has caught up and votes from now on", "node", j.Node.String())
	return true, c.node.Promote(ctx, j.Node, j.Raft)
}

// replace sees to it that the configuration has the address of one that joins for nobody
// else: it takes out a dead coordinator, and displaces one that has gone elsewhere.
func (c *Coordinator) replace(ctx context.Context, old consensus.Member, j cluster.Join) error {
	n := c.feed.Snapshot().Nodes[old.ID]
	if old.ID != c.cfg.Node.ID && (n == nil || !n.Serves()) && c.node.Unreached(old.ID) {
		c.cfg.Logger.Warn("a dead coordinator's address is another one's: it is taken out", "node", old.ID.String(), "by", j.Node.String(), "raft", j.Raft)
		return c.node.Remove(ctx, old.ID)
	}
	if at, ok := c.locate(old.ID); ok && at != j.Raft {
		return c.displace(ctx, old)
	}
	return fmt.Errorf("its address %s is that of coordinator %s, which lives", j.Raft, old.ID)
}

func (c *Coordinator) locate(id ident.NodeID) (string, bool) {
	if c.cfg.Locate == nil {
		return "", false
	}
	return c.cfg.Locate(id)
}

// displace takes an address from a coordinator that is not there any more, where raft
// has no address for two: of those that came back at one another's, none could be put
// right before the other is. It is found by gossip until it has said where it is, which
// it does when it sees that the configuration has it elsewhere.
func (c *Coordinator) displace(ctx context.Context, m consensus.Member) error {
	nowhere := "gone-from-" + m.Address + "-" + m.ID.String()
	c.cfg.Logger.Info("a coordinator's address is another one's", "node", m.ID.String(), "raft", m.Address)
	if m.Voter {
		return c.node.Promote(ctx, m.ID, nowhere)
	}
	return c.node.Add(ctx, m.ID, nowhere)
}

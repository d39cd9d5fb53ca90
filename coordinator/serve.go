package coordinator

import (
	"context"
	"time"

	"tidewire/coordinator/state"
	"tidewire/coordinator/watch"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// What other nodes ask comes in here. Nothing is passed on: a coordinator that does
// not lead refuses and names the one that does, so that no call goes in circles.

// ServePropose makes a change under the request id that its first try got. A refusal
// is part of the answer.
func (c *Coordinator) ServePropose(ctx context.Context, request cluster.RequestID, change cluster.Change) (cluster.Answer, error) {
	began := time.Now()
	answer, err := c.servePropose(ctx, request, change)
	c.metrics.done(change.Kind(), err, time.Since(began))
	return answer, err
}

func (c *Coordinator) servePropose(ctx context.Context, request cluster.RequestID, change cluster.Change) (cluster.Answer, error) {
	if !c.node.Status().Leads {
		return cluster.Answer{}, c.notLeading()
	}
	ctx, cancel := context.WithTimeout(ctx, proposeLimit)
	defer cancel()
	cmd := &state.Command{Request: state.RequestID(request), Time: time.Now().UnixMilli(), Change: change}
	b, err := state.Encode(cmd)
	if err != nil {
		return cluster.Answer{}, &fault.Error{Kind: fault.Invalid, Op: "coordinator." + cmd.Kind(), Err: err}
	}
	return c.apply(ctx, cmd, b)
}

// notLeading refuses what only the leading coordinator does.
func (c *Coordinator) notLeading() *fault.Error {
	e := fault.New(fault.CoordinatorUnavailable, "this coordinator does not lead").After(time.Second).With(cluster.FieldKept, "no")
	if leader := c.leader(); leader != (ident.NodeID{}) && leader != c.cfg.Node.ID {
		e = e.With(cluster.FieldLeader, leader.String())
	}
	return e
}

// ServeRenew grants a lease, where this coordinator proves, after the renewal has
// come, that it leads. A life that is over or unknown is fault.Fenced.
func (c *Coordinator) ServeRenew(ctx context.Context, r cluster.Renewal) (cluster.Lease, error) {
	rule := c.rules.Load()
	if rule == nil {
		return cluster.Lease{}, c.notLeading()
	}
	granted, err := rule.renew(ctx, r)
	if err != nil {
		return cluster.Lease{}, err
	}
	if !granted {
		return cluster.Lease{}, fault.New(fault.Fenced, "the life %d of node %s is over, or was never activated", r.Life.Epoch, r.Life.Node)
	}
	index, err := c.decided(ctx)
	if err != nil {
		return cluster.Lease{}, err
	}
	return cluster.Lease{For: c.cfg.Lease, Index: index, Leader: c.cfg.Node.ID, Suspects: rule.suspects()}, nil
}

// ServeDecided gives the index of the latest change of a snapshot that anybody can have
// had an answer to when the call came: this coordinator proves then that it leads.
func (c *Coordinator) ServeDecided(ctx context.Context) (uint64, error) {
	if c.rules.Load() == nil {
		return 0, c.notLeading()
	}
	limited, cancel := context.WithTimeout(ctx, proofLimit)
	defer cancel()
	if err := c.node.Prove(limited); err != nil {
		return 0, fault.New(fault.CoordinatorUnavailable, "this coordinator cannot prove that it leads: %w", err).After(tickEvery)
	}
	return c.decided(ctx)
}

// decided is the latest change of a snapshot that anybody can have heard of by now, from
// whichever coordinator: what is committed is applied here first, though others may have
// been faster. It is for a leader that has just proved that it is one.
func (c *Coordinator) decided(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, proofLimit)
	defer cancel()
	committed, err := c.node.Committed(ctx)
	if err != nil {
		return 0, fault.New(fault.CoordinatorUnavailable, "this coordinator cannot say what is decided: %w", err).After(tickEvery)
	}
	return c.machine.shown(ctx, committed)
}

// ServeReport takes a suspicion in.
func (c *Coordinator) ServeReport(ctx context.Context, s cluster.Suspicion) error {
	rule := c.rules.Load()
	if rule == nil {
		return c.notLeading()
	}
	return rule.suspect(ctx, s)
}

// ServeWatch sends the change feed to a node that has the state of index from (0:
// none), until ctx ends or this coordinator has not heard its leader for a second.
func (c *Coordinator) ServeWatch(ctx context.Context, from uint64, send func(cluster.Message) error) error {
	return watch.Stream(ctx, c.feed, from, func() (ident.NodeID, time.Duration) { return c.leader(), c.node.Heard() }, send)
}

// Renew asks for a lease, here or at the leader. It is one try: who renews does so
// again and again.
func (c *Coordinator) Renew(ctx context.Context, r cluster.Renewal) (cluster.Lease, error) {
	if to, elsewhere := c.elsewhere(); elsewhere {
		return c.cfg.Peers.Renew(ctx, to, r)
	}
	return c.ServeRenew(ctx, r)
}

// Report tells the leader that a node may be dead, in one try.
func (c *Coordinator) Report(ctx context.Context, s cluster.Suspicion) error {
	if to, elsewhere := c.elsewhere(); elsewhere {
		return c.cfg.Peers.Report(ctx, to, s)
	}
	return c.ServeReport(ctx, s)
}

// Decided asks for the latest change that anybody can have had an answer to before, here
// or at the leader. It is one try.
func (c *Coordinator) Decided(ctx context.Context) (uint64, error) {
	if to, elsewhere := c.elsewhere(); elsewhere {
		return c.cfg.Peers.Decided(ctx, to)
	}
	return c.ServeDecided(ctx)
}

// elsewhere names the leader, where it is another one.
func (c *Coordinator) elsewhere() (ident.NodeID, bool) {
	leader := c.leader()
	return leader, c.cfg.Peers != nil && leader != (ident.NodeID{}) && leader != c.cfg.Node.ID
}

package coordinator

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"tidewire/coordinator/consensus"
	"tidewire/coordinator/state"
	"tidewire/internal/cluster"
	"tidewire/internal/control"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/sleep"
)

// tryLimit bounds one try at another coordinator: one that died does not use up the
// time in which its successor could answer.
const tryLimit = time.Second

// Propose makes a change and gives its answer; a refusal is an error. It goes to the
// leading coordinator, wherever that is. While there is none, or nobody knows what
// became of the change, it is tried again under the same request id, until ctx or
// proposeLimit ends. When it returns the feed has reached the change, but for a Commit,
// which is not on it.
func (c *Coordinator) Propose(ctx context.Context, change cluster.Change) (cluster.Answer, error) {
	return c.commit(ctx, &state.Command{Change: change})
}

// decree makes a change that this coordinator has decided on as the leading one: here or
// not at all. Another one that leads by then has granted leases that this one knows
// nothing of, and declares nobody dead on its word.
func (c *Coordinator) decree(ctx context.Context, change cluster.Change) (cluster.Answer, error) {
	return c.carry(ctx, &state.Command{Change: change}, c.apply, func() bool { return c.node.Status().Leads })
}

// commit is Propose for a command, which may be one that only this package makes.
func (c *Coordinator) commit(ctx context.Context, cmd *state.Command) (cluster.Answer, error) {
	return c.carry(ctx, cmd, c.try, func() bool { return true })
}

// attempt is one try of a command, which is encoded as b.
type attempt func(ctx context.Context, cmd *state.Command, b []byte) (cluster.Answer, error)

// carry makes a command by one try after the other, for as long as it may.
func (c *Coordinator) carry(ctx context.Context, cmd *state.Command, try attempt, may func() bool) (cluster.Answer, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, proposeLimit)
	defer cancel()
	cmd.Request = state.RequestID(uuid.New())
	cmd.Time = began.UnixMilli()
	answer, err := c.insist(ctx, cmd, try, may)
	if err == nil && answer.Refusal != nil {
		err = answer.Refusal.Fault()
	}
	c.metrics.done(cmd.Kind(), err, time.Since(began))
	return answer, err
}

func (c *Coordinator) insist(ctx context.Context, cmd *state.Command, try attempt, may func() bool) (cluster.Answer, error) {
	b, err := state.Encode(cmd)
	if err != nil {
		return cluster.Answer{}, &fault.Error{Kind: fault.Invalid, Op: "coordinator." + cmd.Kind(), Err: err}
	}
	pause := 5 * time.Millisecond
	open := false // an earlier try may have been kept
	for {
		answer, err := try(ctx, cmd, b)
		if err == nil {
			return answer, nil
		}
		v := control.Judge(err)
		if v == control.Final && !open {
			return cluster.Answer{}, err
		}
		open = open || v == control.Unknown
		if errors.Is(err, errStops) || !may() || !sleep.For(ctx, pause) || !may() {
			return cluster.Answer{}, control.Unavailable(open, err)
		}
		pause = min(2*pause, 50*time.Millisecond)
	}
}

// try makes one try, here or at the leader.
func (c *Coordinator) try(ctx context.Context, cmd *state.Command, b []byte) (cluster.Answer, error) {
	leader := c.leader()
	if c.node.Status().Leads || leader == c.cfg.Node.ID || leader == (ident.NodeID{}) || c.cfg.Peers == nil || cmd.Found != nil {
		return c.apply(ctx, cmd, b) // without a leader it says so, and so does a node that stops
	}
	tried, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	answer, err := c.cfg.Peers.Propose(tried, leader, cluster.RequestID(cmd.Request), cmd.Change)
	if err != nil || !cmd.OnFeed() {
		return answer, err
	}
	// Whoever has the answer finds the change in the feed; a feed that lags for
	// longer than the caller waits makes the answer no less true.
	_, _ = c.feed.Next(ctx, answer.Index-min(answer.Index, 1))
	return answer, nil
}

var errStops = errors.New("this coordinator is stopping")

// apply makes one try here. What control.Judge makes of its error is what became of
// the change.
func (c *Coordinator) apply(ctx context.Context, cmd *state.Command, b []byte) (cluster.Answer, error) {
	// All others keep the cluster going, or free space.
	urgent := cmd.Create == nil && cmd.Alter == nil && cmd.GroupRegister == nil && cmd.GroupAlter == nil
	got, err := c.node.Apply(ctx, consensus.Command{Bytes: b, UseReserve: urgent})
	if err == nil {
		if cmd.OnFeed() {
			c.machine.publish()
		}
		return got.(cluster.Answer), nil // the machine's Apply gives nothing else
	}
	e, ok := errors.AsType[*consensus.ApplyError](err)
	if !ok {
		return cluster.Answer{}, &fault.Error{Kind: fault.Internal, Op: "coordinator." + cmd.Kind(), Err: err}
	}
	switch e.Outcome {
	case consensus.NoSpace:
		return cluster.Answer{}, fault.New(fault.DiskFull, "the change was not made: %w", e.Err)
	case consensus.NotKept:
		return cluster.Answer{}, control.Unavailable(false, e.Err).With(cluster.FieldKept, "no")
	case consensus.Stopped:
		return cluster.Answer{}, control.Unavailable(true, errors.Join(errStops, e.Err))
	}
	return cluster.Answer{}, control.Unavailable(true, e.Err)
}

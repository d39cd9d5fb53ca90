package coordinator

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"tidewire/coordinator/consensus"
	"tidewire/coordinator/state"
	"tidewire/internal/fault"
)

// propose commits a command and gives its answer; a refusal is an error. While
// raft has no leader, or leaves open what became of the command, it is tried again
// under the same request id, until ctx or proposeLimit ends.
func (c *Coordinator) propose(ctx context.Context, cmd *state.Command) (state.Answer, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, proposeLimit)
	defer cancel()

	cmd.Request = state.RequestID(uuid.New())
	cmd.Time = began.UnixMilli()
	answer, err := c.commit(ctx, cmd)
	if err == nil && answer.Refusal != nil {
		err = answer.Refusal.Fault()
	}
	c.metrics.done(cmd.Kind(), err, time.Since(began))
	return answer, err
}

func (c *Coordinator) commit(ctx context.Context, cmd *state.Command) (state.Answer, error) {
	b, err := state.Encode(cmd)
	if err != nil {
		return state.Answer{}, &fault.Error{Kind: fault.Invalid, Op: "coordinator." + cmd.Kind(), Err: err}
	}
	urgent := cmd.Create == nil && cmd.Alter == nil // a node's start, a topic's end
	pause := 5 * time.Millisecond
	open := false // an earlier try may have been kept
	for {
		got, err := c.node.Apply(ctx, consensus.Command{Bytes: b, UseReserve: urgent})
		if err == nil {
			return got.(state.Answer), nil // the machine's Apply gives nothing else
		}
		var e *consensus.ApplyError
		if !errors.As(err, &e) {
			return state.Answer{}, &fault.Error{Kind: fault.Internal, Op: "coordinator." + cmd.Kind(), Err: err}
		}
		open = open || e.Outcome == consensus.Unknown
		if e.Outcome == consensus.NoSpace && !open {
			return state.Answer{}, fault.New(fault.DiskFull, "the change was not made: %w", e.Err)
		}
		if e.Outcome == consensus.Stopped || !rest(ctx, pause) {
			return state.Answer{}, unavailable(open, e.Err)
		}
		pause = min(2*pause, 200*time.Millisecond)
	}
}

// rest waits, and reports whether there is time left for another try.
func rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

func unavailable(open bool, err error) error {
	if open {
		return fault.New(fault.CoordinatorUnavailable, "the change may have been made or may yet be; look before you repeat it: %w", err).After(time.Second)
	}
	return fault.New(fault.CoordinatorUnavailable, "the change was not made: %w", err).After(time.Second)
}

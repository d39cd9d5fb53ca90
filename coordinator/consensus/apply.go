package consensus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
	"golang.org/x/sys/unix"
)

// Outcome sorts an error of Apply by what became of the command.
type Outcome uint8

const (
	// NotKept: it is in no log; it may be tried again at once.
	NotKept Outcome = iota
	// Unknown: it may be applied, now or later. The same request id again is safe.
	Unknown
	// NoSpace: it was refused for want of disk space.
	NoSpace
	// Stopped: this node serves no more.
	Stopped
)

// ApplyError is why a command has no answer.
type ApplyError struct {
	Outcome Outcome
	Err     error
}

func (e *ApplyError) Error() string { return e.Err.Error() }
func (e *ApplyError) Unwrap() error { return e.Err }

// Command is what Apply commits.
type Command struct {
	Bytes []byte
	// UseReserve lets it take the disk's last room: what a node cannot start
	// without, and what frees space.
	UseReserve bool
}

// Apply commits a command and gives the machine's answer. It may be called
// concurrently, and a caller that stops waiting leaves the command under way.
func (n *Node) Apply(ctx context.Context, c Command) (any, error) {
	if !c.UseReserve {
		if err := n.room(); err != nil {
			n.full.Store(true) // another leads, whose disk may have room
			return nil, &ApplyError{NoSpace, err}
		}
	}
	enqueue := time.Second // raft's main loop takes it in, or is busy with a stalled disk
	if deadline, ok := ctx.Deadline(); ok {
		enqueue = max(time.Millisecond, min(enqueue, time.Until(deadline)))
	}
	var f raft.ApplyFuture
	err := n.commit(ctx, func() raft.Future {
		f = n.raft.Apply(c.Bytes, enqueue)
		return f
	})
	if err != nil {
		return nil, &ApplyError{outcome(err), err}
	}
	answer := f.Response()
	if err, ok := answer.(error); ok {
		return nil, &ApplyError{Stopped, err}
	}
	return answer, nil
}

var (
	errClosed  = errors.New("the coordinator is shutting down")
	errWaiting = errors.New("too many commands are under way")
)

// commit starts a future and waits for it. Its slot is free again only when the
// future has ended, even if the caller stops waiting before: so when Close has all
// the slots, nothing is under way.
func (n *Node) commit(ctx context.Context, start func() raft.Future) error {
	select {
	case n.slots <- struct{}{}:
	case <-n.closed:
		return errClosed
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errWaiting, context.Cause(ctx))
	}
	f := start()
	done := make(chan error, 1)
	n.waits.Go(func() {
		err := f.Error()
		<-n.slots
		done <- err
	})
	return wait(ctx, done)
}

// await waits for a future, but no longer than ctx.
func (n *Node) await(ctx context.Context, f raft.Future) error {
	done := make(chan error, 1)
	n.waits.Go(func() { done <- f.Error() })
	return wait(ctx, done)
}

func wait(ctx context.Context, done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func outcome(err error) Outcome {
	switch {
	case errors.Is(err, errFull):
		return NoSpace
	case errors.Is(err, raft.ErrRaftShutdown), errors.Is(err, errStopped), errors.Is(err, errClosed):
		return Stopped
	case errors.Is(err, errWaiting), errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrEnqueueTimeout),
		errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return NotKept
	}
	return Unknown // leadership lost on the way, or the caller's time is over
}

// room refuses while the disk holds no more than raft's own reserve.
func (n *Node) room() error {
	free, err := n.free()
	if err != nil {
		return err
	}
	if free < reserveBytes {
		return fmt.Errorf("%w: %d bytes are left", errFull, free)
	}
	return nil
}

// free is what the disk has left.
func (n *Node) free() (uint64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(n.cfg.Dir, &s); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", n.cfg.Dir, err)
	}
	return uint64(s.Bavail) * uint64(s.Bsize), nil
}

// Status is where the node stands.
type Status struct {
	Leads   bool
	Leader  string // node id; empty: none known
	Term    uint64
	Last    uint64 // the last entry in the log
	Applied uint64
}

// Status reads raft's own view. It is a hint, as soon as it is read.
func (n *Node) Status() Status {
	if n.raft == nil {
		return Status{}
	}
	_, leader := n.raft.LeaderWithID()
	return Status{
		Leads:   n.raft.State() == raft.Leader,
		Leader:  string(leader),
		Term:    n.raft.CurrentTerm(),
		Last:    n.raft.LastIndex(),
		Applied: n.raft.AppliedIndex(),
	}
}

// TakeSnapshot makes a snapshot now.
func (n *Node) TakeSnapshot(ctx context.Context) error {
	return n.await(ctx, n.raft.Snapshot())
}

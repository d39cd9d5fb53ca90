package consensus

import (
	"context"
	"errors"

	"github.com/hashicorp/raft"
)

// Announce lets the other members know at once that an index is committed, if this node
// leads; raft lets them know some time later. It does not wait for them.
func (n *Node) Announce(index uint64) {
	if n.raft.State() == raft.Leader {
		n.trans.herald.announce(index)
	}
}

// Committed is the latest command that is committed, as this node knows; 0: the log holds
// none, and all are applied. A leader that has just proved itself, and has applied what
// former leaders left, knows of all that anybody can have applied before the proof: it is
// the leader who tells the others what is committed.
func (n *Node) Committed(ctx context.Context) (uint64, error) {
	select {
	case n.slots <- struct{}{}: // the store stays open meanwhile
		defer func() { <-n.slots }()
	case <-n.closed:
		return 0, errClosed
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	for i := n.raft.CommitIndex(); i > 0; i-- {
		var l raft.Log
		switch err := n.store.GetLog(i, &l); {
		case errors.Is(err, raft.ErrLogNotFound):
			return 0, nil // a snapshot has it
		case err != nil:
			return 0, err
		case l.Type == raft.LogCommand:
			return i, nil
		}
	}
	return 0, nil
}

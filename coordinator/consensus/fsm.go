package consensus

import (
	"fmt"
	"io"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// Machine is the state that commands change. raft calls it from one goroutine.
type Machine interface {
	// Apply applies a committed command. An error means that it cannot be applied
	// at all; the node then stops rather than skip it.
	Apply(index uint64, command []byte) (any, error)
	// Capture takes the state as it is; it is written while Apply goes on.
	Capture() io.WriterTo
	// Restore drops everything and takes a snapshot's state.
	Restore(snapshot []byte) error
}

// fsm is Machine as raft wants it.
type fsm struct {
	machine Machine
	fail    func(error)
	broken  atomic.Bool // a command was not applied: none after it may be
}

func (f *fsm) Apply(l *raft.Log) any {
	if f.broken.Load() {
		return errStopped
	}
	answer, err := f.machine.Apply(l.Index, l.Data)
	if err != nil {
		f.broken.Store(true)
		f.fail(fmt.Errorf("apply: %w", err))
		return err
	}
	return answer
}

func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	if f.broken.Load() {
		return nil, errStopped
	}
	return captured{f.machine.Capture()}, nil
}

func (f *fsm) Restore(r io.ReadCloser) error {
	defer r.Close() // read only
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	return f.machine.Restore(b)
}

type captured struct{ state io.WriterTo }

func (c captured) Persist(sink raft.SnapshotSink) error {
	if _, err := c.state.WriteTo(sink); err != nil {
		return err // raft cancels the sink
	}
	return sink.Close()
}

func (c captured) Release() {}

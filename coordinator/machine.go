package coordinator

import (
	"context"
	"io"
	"sync"
	"time"

	"tidewire/coordinator/state"
	"tidewire/internal/feed"
	"tidewire/internal/sleep"
)

// machine is the pure state machine as consensus drives it, with the feed
// behind it.
//
// A snapshot costs a copy of what changes after it, so that a replay, or a member
// that catches up, must not publish each entry: what comes within settle of the
// last one is published together. Whoever has an answer in hand publishes first.
type machine struct {
	mu    sync.Mutex // raft applies and captures in one goroutine; others publish
	state *state.Machine
	live  bool // publish at all; before, a replay is under way
	feed  *feed.Feed
	last  time.Time     // of the latest publication
	stale chan struct{} // holds a token while something is to be published
}

// settle is how long a change may wait for others to be published with it.
const settle = 5 * time.Millisecond

func newMachine(f *feed.Feed) *machine {
	return &machine{state: state.New(), feed: f, stale: make(chan struct{}, 1)}
}

func (m *machine) Apply(index uint64, command []byte) (any, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, err := m.state.Apply(index, command)
	if err != nil {
		return nil, err
	}
	m.changedLocked()
	return a, nil
}

func (m *machine) Capture() io.WriterTo {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.Capture()
}

func (m *machine) Restore(snapshot []byte) error {
	s, err := state.Restore(snapshot)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = s
	m.changedLocked()
	return nil
}

func (m *machine) changedLocked() {
	if !m.live {
		return
	}
	if time.Since(m.last) >= settle {
		m.publishLocked()
		return
	}
	select {
	case m.stale <- struct{}{}:
	default: // one is enough
	}
}

func (m *machine) publishLocked() {
	m.last = time.Now()
	m.feed.Publish(m.state.Snapshot())
}

// publish makes everything that was applied visible, now and from now on.
func (m *machine) publish() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.live = true
	if m.state.Index() > m.feed.Snapshot().Index {
		m.publishLocked()
	}
}

// run publishes what waited, until ctx ends.
func (m *machine) run(ctx context.Context) error {
	for {
		select {
		case <-m.stale:
		case <-ctx.Done():
			return nil
		}
		if !sleep.For(ctx, settle) {
			return nil
		}
		m.publish()
	}
}

package coordinator

import (
	"io"
	"sync"

	"tidewire/coordinator/state"
	"tidewire/coordinator/watch"
)

// machine is the pure state machine as consensus drives it, with the feed
// behind it.
type machine struct {
	mu    sync.Mutex // raft applies and captures in one goroutine; Open publishes in another
	state *state.Machine
	live  bool // publish each change; a replay publishes only its end
	feed  *watch.Feed
}

// Apply publishes before it answers, so that a caller who has the answer finds
// the change in the feed.
func (m *machine) Apply(index uint64, command []byte) (any, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, err := m.state.Apply(index, command)
	if err != nil {
		return nil, err
	}
	if m.live {
		m.feed.Publish(m.state.Snapshot())
	}
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
	if m.live {
		m.feed.Publish(s.Snapshot())
	}
	return nil
}

// publish begins to publish: the replay is over.
func (m *machine) publish() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.live = true
	m.feed.Publish(m.state.Snapshot())
}

package coordinator

import (
	"context"
	"io"
	"sync"
	"time"

	"tidewire/coordinator/state"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/feed"
	"tidewire/internal/sleep"
)

// machine is the pure state machine as consensus drives it, with the feed
// behind it.
//
// A snapshot costs a copy of what changes after it, so that a replay, or a member
// that catches up, must not publish each entry: what comes within settle of the
// last one is published together. Whoever has an answer in hand publishes first. What
// groups have done is in no snapshot: commits of it are published for their index alone,
// now and then.
type machine struct {
	mu    sync.Mutex // raft applies and captures in one goroutine; others publish
	state *state.Machine
	live  bool // publish at all; before, a replay is under way
	feed  *feed.Feed
	last  time.Time     // of the latest publication
	stale chan struct{} // holds a token while something is to be published
	quiet chan struct{} // likewise where it is an index alone
	moved chan struct{} // closed with the next entry; nil: nobody waits
}

const (
	// settle is how long a change may wait for others to be published with it.
	settle = 5 * time.Millisecond
	// indexEvery is how long the index may wait, where nothing else has changed.
	indexEvery = 500 * time.Millisecond
)

func newMachine(f *feed.Feed) *machine {
	return &machine{state: state.New(), feed: f, stale: make(chan struct{}, 1), quiet: make(chan struct{}, 1)}
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

// progress tells how far groups have come, from the state at an index or a later one.
func (m *machine) progress(ctx context.Context, of cluster.ProgressOf) (got []cluster.GroupProgress, err error) {
	err = m.from(ctx, of.After, func() {
		if of.Dying {
			got = m.state.Dying(of.Partition, of.Beyond, cluster.MaxProgress)
		} else {
			got = m.state.Progress(of.Partition, of.Groups)
		}
	})
	return got, err
}

// shown is the latest change that a snapshot shows, of all up to an index at least.
func (m *machine) shown(ctx context.Context, after uint64) (index uint64, err error) {
	err = m.from(ctx, after, func() { index = m.state.Shown() })
	return index, err
}

// from looks at the state at an index or a later one.
func (m *machine) from(ctx context.Context, after uint64, look func()) error {
	for {
		index, moved := m.fromNow(after, look)
		if moved == nil {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fault.New(fault.CoordinatorUnavailable, "this coordinator is at index %d and has not come to %d: %w", index, after, context.Cause(ctx)).After(time.Second)
		}
	}
}

func (m *machine) fromNow(after uint64, look func()) (index uint64, moved <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if index = m.state.Index(); index >= after {
		look()
		return index, nil
	}
	if m.moved == nil {
		m.moved = make(chan struct{})
	}
	return index, m.moved
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
	if m.moved != nil {
		close(m.moved)
		m.moved = nil
	}
	switch {
	case !m.live:
	case m.state.Shown() < m.state.Index():
		token(m.quiet)
	case time.Since(m.last) >= settle:
		m.publishLocked()
	default:
		token(m.stale)
	}
}

func token(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
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
		waited := false
		select {
		case <-m.stale:
			waited = sleep.For(ctx, settle)
		case <-m.quiet:
			waited = m.rest(ctx)
		case <-ctx.Done():
		}
		if !waited {
			return nil
		}
		m.publish()
	}
}

// rest waits until an index alone is due, or something else is.
func (m *machine) rest(ctx context.Context) bool {
	t := time.NewTimer(indexEvery)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-m.stale:
		return sleep.For(ctx, settle)
	case <-ctx.Done():
		return false
	}
}

package memlog

import (
	"context"
	"sync"

	"tidewire/internal/cluster"
)

// Late is what a node has of a cluster that it has not heard of for a while: the snapshot
// of then, until it catches up.
type Late struct {
	Now interface{ Snapshot() *cluster.Snapshot } // the cluster; required

	mu     sync.Mutex
	before *cluster.Snapshot // nil: it has heard of everything
	caught int
}

// Miss has the node miss what happens from now on.
func (l *Late) Miss() {
	now := l.Now.Snapshot()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.before = now
}

// Snapshot is what the node has.
func (l *Late) Snapshot() *cluster.Snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.before != nil {
		return l.before
	}
	return l.Now.Snapshot()
}

// CatchUp has the node hear of everything.
func (l *Late) CatchUp(context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.before = nil
	l.caught++
}

// Caught is how often it caught up.
func (l *Late) Caught() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.caught
}
